package disk

import (
	"context"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
)

// scrubRate is how many bytes a second a scrub reads from a log that is in use. It leaves
// the disk to those who append and deliver. The first second's worth is read at once.
const scrubRate = 64 << 20

// pace keeps a scrub at its rate.
type pace struct {
	began time.Time
	done  int64
}

// take notes bytes that were read, and waits where they were too many.
func (p *pace) take(ctx context.Context, bytes int) {
	p.done += int64(bytes)
	ahead := time.Duration(float64(p.done)/scrubRate*float64(time.Second)) - time.Since(p.began)
	if ahead > time.Second {
		_ = retry.Sleep(ctx, ahead-time.Second) // whoever reads on sees that ctx has ended
	}
}
