package disk

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAScrubLeavesTheDiskToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace{began: time.Now()}
		start := p.began
		for range 64 { // a small log is read at once
			p.take(t.Context(), 1<<20)
		}
		assert.Zero(t, time.Since(start))
		for range 100 * 64 {
			p.take(t.Context(), 1<<20)
		}
		assert.Equal(t, 100*time.Second, time.Since(start))
		p.done = 1 << 40 // of a terabyte
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.take(ctx, 1); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			assert.Fail(t, "a large log is not read at once either")
		default:
		}
		cancel()
		<-ended
		assert.Equal(t, 100*time.Second, time.Since(start), "it ends with its context")
	})
}
