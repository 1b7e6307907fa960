package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes; in YAML a whole number, alone or with kB, MB, GB,
// TB, KiB, MiB, GiB or TiB.
type Size int64

// A unit of [Size], the larger ones first.
type unit struct {
	name  string
	bytes int64
}

var units = []unit{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
}

// String returns the size as a whole number of the largest unit.
func (s Size) String() string {
	for _, u := range units {
		if u.bytes > 1 && s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements encoding.TextMarshaler in the form of String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler: a whole number, alone for
// bytes or with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
// (powers of 1024), a space between them allowed.
func (s *Size) UnmarshalText(text []byte) error {
	number, scale := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, scale = strings.TrimRight(n, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n > math.MaxInt64/scale || n < math.MinInt64/scale):
		return errors.New("the size is too large")
	case err != nil:
		return errors.New("not a size: write a whole number of bytes, or one with kB, MB, GB, TB, KiB, MiB, GiB or TiB")
	}
	*s = Size(n * scale)
	return nil
}
