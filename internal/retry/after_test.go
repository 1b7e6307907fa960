package retry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParseAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 3, 8, 30, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0": 0, " 90 ": 90 * time.Second, "3600": time.Hour, "3601": time.Hour, "9223372036854775807": time.Hour,
		"Tue, 03 Nov 2026 08:31:00 GMT": time.Minute, "Tuesday, 03-Nov-26 08:31:00 GMT": time.Minute,
		"Tue, 03 Nov 2026 08:29:00 GMT": 0, "Tue, 03 Nov 2099 08:31:00 GMT": time.Hour,
	} {
		got, ok := ParseAfter(value, now, time.Hour)
		assert.True(t, ok, value)
		assert.Equal(t, want, got, value)
	}
	for _, value := range []string{"", "x", "-5", "1.5", "99999999999999999999"} {
		got, ok := ParseAfter(value, now, time.Hour)
		assert.False(t, ok, value)
		assert.Zero(t, got, value)
	}
}
