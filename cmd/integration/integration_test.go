package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// ledger acknowledges the events from 0 to n.
func ledger(prefix string, n uint64) workspacesim.Ledger {
	return workspacesim.Ledger{
		Prefix:       prefix,
		Acknowledged: []workspacesim.Range{{From: 0, To: n}},
		Counts:       workspacesim.Counts{Acknowledged: n},
	}
}

// holding is a target with the ids, in their order.
func holding(ids ...string) target {
	return target{read: func(_ context.Context, add func(id string)) error {
		for _, id := range ids {
			add(id)
		}
		return nil
	}}
}

func TestWhatIsMissingIsCounted(t *testing.T) {
	t.Parallel()
	const ours, other = "event-log-a.test-run1-", "event-log-a.test-run0-"
	ledgers := []workspacesim.Ledger{ledger(ours, 3)}
	id := func(prefix string, seq uint64) string { return workspacesim.EventID(prefix, seq) }
	for _, c := range []struct {
		name                      string
		ids                       []string
		arrived, lost, duplicates int64
	}{
		{"all", []string{id(ours, 2), id(ours, 0), id(ours, 1)}, 3, 0, 0},
		{"twice", []string{id(ours, 0), id(ours, 1), id(ours, 1), id(ours, 2)}, 3, 0, 1},
		{"one is missing", []string{id(ours, 0), id(ours, 2)}, 2, 1, 0},
		{"one came that was not acknowledged", []string{id(ours, 0), id(ours, 1), id(ours, 2), id(ours, 3)}, 4, 0, 0},
		{"those of another run do not count", []string{id(other, 0), id(other, 1), id(other, 1), id(other, 2)}, 0, 3, 0},
		{"nor the relay's own", []string{"settings-1", "", id(ours, 0), id(ours, 1), id(ours, 2)}, 3, 0, 0},
		{"nothing", nil, 0, 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tally, err := tallyOf(t.Context(), holding(c.ids...), ledgers)
			require.NoError(t, err)
			var r row
			r.count(tally, ledgers)
			assert.Equal(t, row{acknowledged: 3, arrived: c.arrived, lost: c.lost, duplicates: c.duplicates}, r)
			assert.Equal(t, c.lost > 0, found([]row{{}, r}))
		})
	}
}

func TestATargetThatCannotBeReadIsNoEmptyOne(t *testing.T) {
	t.Parallel()
	broken := target{read: func(context.Context, func(string)) error { return io.ErrUnexpectedEOF }}
	_, err := tallyOf(t.Context(), broken, nil)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestARunThatShowsNothingIsNoSuccess(t *testing.T) {
	t.Parallel()
	var r row
	r.count(workspacesim.Tally{}, []workspacesim.Ledger{ledger("event-log-a-", 0)})
	assert.True(t, found([]row{r}), "nothing was acknowledged")

	refused := ledger("event-log-a-", 1)
	refused.Counts.Dropped = 7
	tally, err := tallyOf(t.Context(), holding(workspacesim.EventID(refused.Prefix, 0)), []workspacesim.Ledger{refused})
	require.NoError(t, err)
	r = row{}
	r.count(tally, []workspacesim.Ledger{refused})
	assert.Equal(t, []string{"7 events were refused for good"}, r.wrong)
}

func TestTheTable(t *testing.T) {
	t.Parallel()
	rows := []row{
		{name: "kafka RF 3", run: "calm", acknowledged: 5, arrived: 6, duplicates: 2, took: 21 * time.Second},
		{name: "nats R3", run: "node killed", acknowledged: 5, arrived: 5, remarks: []string{"n1 killed"}},
		{name: "loki", skipped: "there is no go here"},
	}
	assert.False(t, found(rows), "what is skipped is no failure")
	text := table(rows)
	assert.Regexp(t, `destination +run +acknowledged +arrived +lost +duplicates`, text)
	assert.Regexp(t, `kafka RF 3 +calm +5 +6 +0 +2 +21s`, text)
	assert.Regexp(t, `nats R3 +node killed +5 +5 +0 +0 +0s +n1 killed`, text)
	assert.Regexp(t, `loki +- .*SKIPPED: there is no go here`, text)

	assert.True(t, found(append(rows, row{lost: 1})))
	wrong := []row{{name: "relay", remarks: []string{"one"}, wrong: []string{"it ended\nwith a long log"}}}
	assert.True(t, found(wrong))
	assert.Contains(t, table(wrong), "one; WRONG: it ended\n")
	assert.NotContains(t, table(wrong), "long log")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 1, exitCode(errFound))
	assert.Equal(t, 1, exitCode(fmt.Errorf("cut off: %w", context.Canceled)))
	for _, args := range [][]string{
		{"--only", "earthquake"},
		{"--rate", "0"},
		{"--rate", "many"},
		{"--load", "1ms"},
		{"--kills", "-1"},
		{"--takeovers", "-1"},
		{"--patience", "0s"},
		{"--binary", "/no/such/relay"},
		{"--no-such-flag"},
		{"argument"},
	} {
		cmd := newCommand()
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		require.Error(t, err, args)
		assert.Equal(t, 2, exitCode(err), "%v: %v", args, err)
	}
}

func TestDestinationsAreChosenByName(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	require.NoError(t, err)
	assert.Equal(t, names(destinations()), names(all))
	some, err := choose([]string{"nats", "file"})
	require.NoError(t, err)
	assert.Equal(t, []string{"file", "nats"}, names(some), "in the order of the table")
	_, err = choose([]string{"file", "earthquake"})
	require.ErrorContains(t, err, `no destination "earthquake"`)
}

func TestTheCacheIsFilledWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s := &session{out: t.Output()}
	dir := filepath.Join(t.TempDir(), "cache", "kafka-1")
	broken := errors.New("cut off")
	err := s.cached(t.Context(), dir, func(_ context.Context, into string) error {
		require.NoError(t, os.WriteFile(filepath.Join(into, "half.jar"), nil, 0o600))
		return broken
	})
	require.ErrorIs(t, err, broken)
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	assert.Empty(t, left)

	filled := 0
	for range 2 {
		require.NoError(t, s.cached(t.Context(), dir, func(_ context.Context, into string) error {
			filled++
			return os.WriteFile(filepath.Join(into, "whole.jar"), nil, 0o600)
		}))
	}
	assert.Equal(t, 1, filled)
	assert.FileExists(t, filepath.Join(dir, "whole.jar"))
}

func TestABuildThatFailsSkipsItsDestination(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &session{dir: t.TempDir(), out: &out, flags: flags{build: time.Minute}}
	require.NoError(t, s.build(t.Context(), "good", "true"))
	var skipped *skip
	require.ErrorAs(t, s.build(t.Context(), "bad", "sh", "-c", "echo no network; exit 3"), &skipped)
	assert.Contains(t, skipped.reason, "no network")
	assert.Contains(t, skipped.reason, "exit status 3")
	s.flags.build = 50 * time.Millisecond
	require.ErrorAs(t, s.build(t.Context(), "slow", "sleep", "60"), &skipped)
	assert.Contains(t, skipped.reason, "slow did not end within 50ms")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.build(ended, "slow", "sleep", "60"), context.Canceled, "a Ctrl-C is no skip")

	s.startPlace(t.Context(), destination{"kafka", "brokers", func(context.Context, *session) (*place, error) {
		return nil, skipped
	}})
	assert.Contains(t, out.String(), "SKIPPED kafka: slow did not end")
	assert.Equal(t, []row{{name: "kafka", skipped: skipped.reason}}, s.rows)
	s.startPlace(t.Context(), destination{"kafka", "brokers", func(context.Context, *session) (*place, error) {
		return nil, errors.New("the broker does not start")
	}})
	assert.True(t, found(s.rows), "a server that is there and does not start is a failure")
}

func TestJavaVersions(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 17, javaVersion("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime"))
	assert.Equal(t, 21, javaVersion("Picked up JAVA_TOOL_OPTIONS\nopenjdk version \"21\" 2023-09-19"))
	assert.Equal(t, 1, javaVersion("java version \"1.8.0_402\""))
	assert.Zero(t, javaVersion("command not found"))
}
