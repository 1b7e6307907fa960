package relaytest

import (
	"context"
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/relay"
)

// DeadLetters keeps rejections in memory. Its zero value is empty; it is safe
// for concurrent use.
type DeadLetters struct {
	mu   sync.Mutex // guards the fields below
	kept map[string][]relay.Rejection
	errs []error
}

// Reject implements relay.DeadLetters.
func (d *DeadLetters) Reject(ctx context.Context, sink string, rejections []relay.Rejection) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := shift(&d.errs); err != nil {
		return err
	}
	if d.kept == nil {
		d.kept = map[string][]relay.Rejection{}
	}
	d.kept[sink] = append(d.kept[sink], rejections...)
	return nil
}

// Fail makes the next calls of Reject fail with errs, one each.
func (d *DeadLetters) Fail(errs ...error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, errs...)
}

// Kept returns the rejections for sink, in order.
func (d *DeadLetters) Kept(sink string) []relay.Rejection {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.kept[sink])
}
