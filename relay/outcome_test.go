package relay_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/relay"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	down, busy, refused := errors.New("down"), relay.RetryAfter(errors.New("busy"), time.Second), relay.Permanent(errors.New("refused"))
	for name, c := range map[string]struct {
		failures []relay.Failure
		want     error
	}{
		"no failure":    {nil, nil},
		"all may pass":  {[]relay.Failure{{Index: 1, Err: down}, {Index: 0, Err: busy}}, busy},
		"some":          {[]relay.Failure{{Index: 1, Err: down}}, &relay.PartialError{Failures: []relay.Failure{{Index: 1, Err: down}}}},
		"some for good": {[]relay.Failure{{Index: 1, Err: refused}, {Index: 0, Err: down}}, &relay.PartialError{Failures: []relay.Failure{{Index: 0, Err: down}, {Index: 1, Err: refused}}}},
	} {
		assert.Equal(t, c.want, relay.Outcome(2, c.failures), name)
		if len(c.failures) == 2 {
			assert.Equal(t, 1, c.failures[0].Index, "the caller's slice was sorted")
		}
	}
}
