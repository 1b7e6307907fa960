package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	local := func(hour, minute, second int) time.Time {
		return time.Date(2026, 3, 1, hour, minute, second, 0, time.Local)
	}
	for text, want := range map[string]time.Time{
		"2026-03-01T08:30:00Z":      time.Date(2026, 3, 1, 8, 30, 0, 0, time.UTC),
		"2026-03-01T08:30:00+02:00": time.Date(2026, 3, 1, 6, 30, 0, 0, time.UTC),
		"2026-03-01":                local(0, 0, 0),
		"2026-03-01 08:30":          local(8, 30, 0),
		"2026-03-01T08:30":          local(8, 30, 0),
		"2026-03-01 08:30:15":       local(8, 30, 15),
	} {
		var f timeFlag
		require.NoError(t, f.Set(text), text)
		assert.True(t, want.Equal(f.time), "%s is %s", text, f.time)
	}
	for _, text := range []string{"", "yesterday", "2026-13-01", "-2h", "-2d", "d", "1.5d", "99999999d", "01.03.2026"} {
		var f timeFlag
		require.ErrorContains(t, f.Set(text), "write RFC 3339", text)
	}
	var ago timeFlag
	require.NoError(t, ago.Set("2h ago"))
	assert.WithinDuration(t, time.Now().Add(-2*time.Hour), ago.time, time.Minute)
	require.NoError(t, ago.Set("7d"))
	assert.WithinDuration(t, time.Now().Add(-7*24*time.Hour), ago.time, time.Minute)
	var none timeFlag
	assert.WithinDuration(t, time.Now(), none.orNow(), time.Minute)
}
