package loki

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
)

const lokiSettings = `target: all
ingester:
  max_chunk_age: 2h0m0s
limits_config:
  ingestion_rate_mb: 4
  max_label_names_per_series: 15
  reject_old_samples: true
  reject_old_samples_max_age: 1w
  max_line_size: 256KB
  max_line_size_truncate: false
  allow_structured_metadata: true
  max_structured_metadata_size: 64KB
  max_structured_metadata_entries_count: 128
`

func check(t *testing.T, f *fake, change func(*config.Loki)) (string, error) {
	t.Helper()
	var b strings.Builder
	err := f.sink(t, change).Check(t.Context(), func(what, found string) { b.WriteString(what + ": " + found + "\n") })
	assert.Empty(t, f.entries(), "a check writes nothing")
	return b.String(), err
}

func TestCheck(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.user, f.pass = "me", "hunter2"
	said, err := check(t, f, func(c *config.Loki) { c.Username, c.Password = "me", secret.New("hunter3") })
	require.ErrorContains(t, err, "answered 401")
	assert.Empty(t, said)

	right := func(c *config.Loki) { c.Username, c.Password, c.Tenant = "me", secret.New("hunter2"), "t-{project}" }
	said, err = check(t, f, right)
	require.NoError(t, err)
	assert.Contains(t, said, "tenant: t-auditrelay-check\n")
	assert.Contains(t, said, "takes the credential")
	assert.Contains(t, said, "limits: not shown (/config answers 404)")

	settings := lokiSettings
	f.set(func() {
		f.answer = func(r *http.Request) *canned {
			if r.URL.Path != "/config" {
				return nil
			}
			return &canned{status: http.StatusOK, text: settings}
		}
	})
	said, err = check(t, f, right)
	require.NoError(t, err)
	assert.Contains(t, said, "max_line_size: 256KB; the sink's line_bytes is 262144")
	assert.Contains(t, said, "max_chunk_age: 2h0m0s; the sink's late_after is 1h0m0s")
	assert.Contains(t, said, "reject_old_samples_max_age: 1w; older events go to the dead letters")
	assert.NotContains(t, said, "hunter2")

	for change, want := range map[string]string{
		"max_line_size: 256KB\n  max_line_size_truncate: false>max_line_size: 1KB\n  max_line_size_truncate: true": "set line_bytes to at most 1024",
		"allow_structured_metadata: true>allow_structured_metadata: false":                                         "set allow_structured_metadata",
		"max_chunk_age: 2h0m0s>max_chunk_age: 30m0s":                                                               "set late_after to at most 15m0s",
	} {
		from, to, _ := strings.Cut(change, ">")
		require.Contains(t, lokiSettings, from)
		settings = strings.Replace(lokiSettings, from, to, 1)
		_, err = check(t, f, right)
		require.ErrorContains(t, err, want)
	}
	settings = "<html>"
	said, err = check(t, f, right)
	require.NoError(t, err)
	assert.Contains(t, said, "/config is not Loki's")

	f.down()
	_, err = check(t, f, right)
	require.ErrorContains(t, err, "post to 127.0.0.1")
}

func TestReadSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"0B": 0, "256KB": 256 << 10, "4MB": 4 << 20, "1GB": 1 << 30, "700": 700, "700B": 700} {
		got, ok := readSize(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, got, text)
	}
	for _, wrong := range []string{"", "KB", "1.5MB", "99999999999MB", "x"} {
		_, ok := readSize(wrong)
		assert.False(t, ok, wrong)
	}
}
