package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

// queue is a section that a program defines.
type queue struct {
	Address string                 `yaml:"address"`
	Token   secret.Text            `yaml:"token"`
	Wait    time.Duration          `yaml:"wait"`
	Headers map[string]secret.Text `yaml:"headers"`
	KeyFile string                 `yaml:"key_file"`
}

func (q *queue) SetDefaults() { setDefault(&q.Wait, 5*time.Second) }

func (q *queue) Problems() (all []Problem) {
	if q.Address == "" {
		all = append(all, Problem{Reason: "needs an address"})
	}
	if q.Wait < 0 {
		all = append(all, Problem{Field: "wait", Value: q.Wait.String(), Reason: "must be positive"})
	}
	if q.Token.Reveal() == "hunter2" { // as a careless section would
		all = append(all, Problem{Field: "token", Value: q.Token.Reveal(), Reason: q.Token.Reveal() + " is too short"})
	}
	return all
}

func (q *queue) Warnings() (all []Problem) {
	if q.Wait > time.Minute {
		all = append(all, Problem{Field: "wait", Value: q.Wait.String(), Reason: "is long, with the token " + q.Token.Reveal()})
	}
	return all
}

func (q *queue) Resource() (field, name string) { return "address", q.Address }

func queues() Kinds { return Kinds{{Name: "queue", New: func() Section { return new(queue) }}} }

func parseQueues(t *testing.T, sinks string) (*Config, []Problem, error) {
	t.Helper()
	return queues().Parse("relay.yaml", []byte(minimal+"sinks:\n"+sinks), environment(map[string]string{"KEY": "a-key-of-some-length", "TOKEN": "hunter2-of-some-length"}))
}

func TestCustomSection(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := parseQueues(t, "- name: q\n  queue: {address: a:1, token: '${TOKEN}', headers: {x: '${TOKEN}'}}\n- {name: other, queue: {address: b, wait: 1s}}\n")
	require.NoError(t, err)
	assert.Empty(t, warnings)
	q, ok := cfg.Sinks[0].Custom.Section.(*queue)
	require.True(t, ok)
	assert.Equal(t, "hunter2-of-some-length", q.Token.Reveal())
	assert.Equal(t, 5*time.Second, q.Wait, "its own default")
	assert.Equal(t, 5000, cfg.Sinks[0].BatchEvents, "the sink's")
	assert.Equal(t, "queue", cfg.Sinks[1].Custom.Kind)
	require.NoError(t, cfg.Sinks[1].Complete())
	assert.NotNil(t, cfg.Sinks[0].Exclusive())
}

func TestCustomSectionIsDecodedStrictly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- {name: q, queue: {addrss: a}}":                                    `line 6: sinks[0].queue.addrss: unknown field; did you mean address?`,
		"- {name: q, queue: {address: a, wait: soon}}":                       `sinks[0].queue.wait: "soon": not a duration`,
		"- {name: q, queue: {address: a, wait: -1s}}":                        `sinks[0].queue.wait: "-1s": must be positive`,
		"- {name: q, queue: {token: '${TOKEN}'}}":                            `line 6: sinks[0].queue: needs an address`,
		"- {name: q, queue: {address: a}, file: {path: x}}":                  ` or queue; make a sink of each`,
		"- {name: q, queue: }":                                               `must have exactly one destination`,
		"- {name: q, queue: [1]}":                                            `sinks[0].queue: must hold fields`,
		"- {name: q, queu: {}}":                                              `did you mean queue?`,
		"- {name: q, parallel: 2, queue: {address: a}}":                      `must be 1 with queue: a queue has one writer`,
		"- {name: q, queue: {address: a}}\n- {name: r, queue: {address: a}}": `sinks[1].queue.address: "a": is written by sinks[0] already; give each sink a queue of its own`,
	} {
		cfg, _, err := parseQueues(t, text+"\n")
		require.ErrorContains(t, err, want, text)
		assert.Nil(t, cfg)
	}
	_, _, err := Parse("relay.yaml", []byte(minimal+"sinks: [{name: q, queue: {}}]\n"), environment(nil))
	require.ErrorContains(t, err, "sinks[0].queue: unknown field", "the kinds are the caller's, not the process's")
}

func TestCustomSectionTellsNoSecret(t *testing.T) {
	t.Parallel()
	_, _, err := parseQueues(t, "- {name: q, queue: {address: a, token: hunter2}}\n")
	require.ErrorContains(t, err, "sinks[0].queue.token: ")
	require.ErrorContains(t, err, "[redacted] is too short")
	assert.NotContains(t, err.Error(), "hunter2")
}

// A section's warnings prevent nothing, and are left out if the section has errors.
func TestCustomSectionWarns(t *testing.T) {
	t.Parallel()
	_, warnings, err := parseQueues(t, "- {name: q, queue: {address: a}}\n- name: r\n  queue:\n    {address: b, token: '${TOKEN}', wait: 2m}\n")
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	assert.Equal(t, Problem{File: "relay.yaml", Line: 9, Field: "sinks[1].queue.wait", Reason: "is long, with the token [redacted]"}, warnings[0])
	_, warnings, err = parseQueues(t, "- {name: q, queue: {wait: 2m}}\n")
	require.ErrorContains(t, err, "needs an address")
	assert.Empty(t, warnings)
}

func TestFilesOfCustomSections(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "relay.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(minimal, "${KEY}", "a-key-of-some-length")+"sinks: [{name: q, queue: {address: a, key_file: /nowhere/key}}]\n"), 0o600))
	_, _, err := queues().Check(path)
	require.ErrorContains(t, err, `sinks[0].queue.key_file: "/nowhere/key": there is no such file`)
	_, _, err = queues().Load(path)
	require.NoError(t, err, "only Check looks at it")
}

func TestTwoCustomSections(t *testing.T) {
	t.Parallel()
	kinds := append(queues(), Kind{Name: "stack", New: func() Section { return new(queue) }})
	_, _, err := kinds.Parse("relay.yaml", []byte(minimal+"sinks: [{name: q, queue: {address: a}, stack: {address: b}}]\n"), environment(nil))
	require.ErrorContains(t, err, "sinks[0].stack: is a second destination; make a sink of each")
}

type hidden struct {
	queue
}

type flat struct {
	Count int32 `yaml:"count"`
}

func (*flat) SetDefaults()        {}
func (*flat) Problems() []Problem { return nil }

// A wrong kind is the program's mistake, and is reported before any file is read.
func TestWrongKinds(t *testing.T) {
	t.Parallel()
	section := func() Section { return new(queue) }
	for want, kinds := range map[string]Kinds{
		`kind of sink "": its name must have`:             {{New: section}},
		`kind of sink "A-b": its name must have`:          {{Name: "A-b", New: section}},
		`kind of sink "kafka": a sink has a field`:        {{Name: "kafka", New: section}},
		`kind of sink "name": a sink has a field`:         {{Name: "name", New: section}},
		`kind of sink "a": it is given twice`:             {{Name: "a", New: section}, {Name: "a", New: section}},
		`kind of sink "a": its New must return a pointer`: {{Name: "a", New: func() Section { return (*queue)(nil) }}},
		`count has the type int32, and cannot`:            {{Name: "a", New: func() Section { return new(flat) }}},
		`queue must be exported, and have a tag such`:     {{Name: "a", New: func() Section { return new(hidden) }}},
	} {
		_, _, err := kinds.Parse("relay.yaml", nil, nil)
		require.ErrorContains(t, err, want)
	}
}
