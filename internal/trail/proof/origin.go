package proof

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// A trail's first generation has the key's name as its origin. A later one has a suffix: the
// index of its first entry, or the time where it began again from 0.
var (
	later = regexp.MustCompile(`/(?:from|since)-[1-9]\d{0,17}$`)
	based = regexp.MustCompile(`/from-([1-9]\d{0,17})$`)
)

// OriginOf names a further generation, from base on, under the key's name. A generation
// from 0, as nothing is known of the past, is told from the first by the time: events
// were made of the old entries, and their ids contain the name.
func OriginOf(name string, base int64, now time.Time) string {
	if base == 0 {
		return fmt.Sprintf("%s/since-%d", name, now.Unix())
	}
	return fmt.Sprintf("%s/from-%d", name, base)
}

// TrailOf is the origin of a trail's first generation, by the origin of any.
func TrailOf(origin string) string { return later.ReplaceAllString(origin, "") }

// BaseOf is the index of a generation's first entry, by its origin.
func BaseOf(origin string) int64 {
	m := based.FindStringSubmatch(origin)
	if m == nil {
		return 0
	}
	base, _ := strconv.ParseInt(m[1], 10, 64) // at most 18 digits
	return base
}
