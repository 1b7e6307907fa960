package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// After is the wait that an answer asks for with a Retry-After header, as in [ParseAfter]. A date in it
// is by the clock of the answer's own Date, since the server's may be wrong, or ours.
func After(h http.Header, most time.Duration) (wait time.Duration, ok bool) {
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return ParseAfter(h.Get("Retry-After"), now, most)
}

// ParseAfter reads the value of a Retry-After header (RFC 9110, 10.2.3): seconds, or an HTTP
// date, compared with now. The wait is between 0 and most: a server's wrong date must not
// silence a client for days. Ok is false for any other value.
func ParseAfter(value string, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		if seconds < 0 {
			return 0, false
		}
		if seconds > int64(most/time.Second) {
			return most, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), most), true
}
