package wire

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/relay"
)

// AddTags adds a list such as "env:prod,team:iam" as labels. A tag without a
// colon is a name without a value. Its error is the set's.
func AddTags(set *LabelSet, tags string) error {
	for tags != "" {
		var tag string
		tag, tags, _ = strings.Cut(tags, ",")
		if tag = strings.TrimSpace(tag); tag != "" {
			name, value, _ := strings.Cut(tag, ":")
			if err := set.Add(relay.Label{Name: name, Value: value}); err != nil {
				return err
			}
		}
	}
	return nil
}

// datadogTime reads milliseconds since 1970 or, in a string, RFC 3339, as Unix
// nanoseconds.
func datadogTime(value []byte, isText bool) (int64, bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms, err := strconv.ParseInt(view(value), 10, 64); err == nil {
		return ms * int64(time.Millisecond), -most <= ms && ms <= most
	}
	if !isText {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339Nano, view(value))
	if err != nil || t.UnixMilli() < -most || t.UnixMilli() > most {
		return 0, false
	}
	return t.UnixNano(), true
}
