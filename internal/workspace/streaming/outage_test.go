package streaming

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// run runs a reconciler and the client's probes until the test's end.
func (g *rig) run(r *Reconciler) {
	g.t.Helper()
	ctx, stop := context.WithCancel(g.t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.watchers[0].options.Client.Probe(ctx) })
	running.Go(func() { r.Run(ctx) })
	g.t.Cleanup(func() { stop(); running.Wait() })
}

// outage makes every call fail, and waits until the relay knows.
func (g *rig) outage(r *Reconciler, status int) {
	g.t.Helper()
	g.api.set(func() { g.api.outage = status })
	_, err := r.Plan(g.t.Context(), shopA)
	require.ErrorIs(g.t, err, management.ErrUnreachable)
}

// The look after an outage does not wait for its interval, here an hour.
func TestTheConfigIsReadWhenAnOutageEnds(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	g.run(r)
	waiting.Until(t, func() bool { return r.Health()[0].OK() })
	g.outage(r, 500)
	puts := g.api.count()
	g.api.set(func() { g.api.outage, g.api.fields["password"] = 0, "by-hand-1234" })
	waiting.Until(t, func() bool { return g.api.count() > puts && r.Health()[0].OK() })
}

// A person who knows that the API is good again is not refused with the old error.
func TestAPersonsCommandNeedsNoRecoveryBeforeIt(t *testing.T) {
	t.Parallel()
	by := workspace.Person{User: "ada", Host: "desk"}
	for name, command := range map[string]func(context.Context, *Reconciler) error{
		"plan":   func(ctx context.Context, r *Reconciler) error { _, err := r.Plan(ctx, shopA); return err },
		"apply":  func(ctx context.Context, r *Reconciler) error { _, err := r.Apply(ctx, shopA, by, "why"); return err },
		"rotate": func(ctx context.Context, r *Reconciler) error { return r.Rotate(ctx, shopA, by, "why") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			r, _ := g.start(nil, toRelay)
			require.NoError(t, r.watchers[0].look(t.Context()))
			for _, status := range []int{500, 401} {
				g.outage(r, status)
				require.ErrorIs(t, r.watchers[0].look(t.Context()), management.ErrUnreachable)
				g.api.set(func() { g.api.outage = 0 })
				require.NoError(t, command(t.Context(), r))
			}
		})
	}
}

// A refused push has a look that asks the API at once, too.
func TestARefusedPushNeedsNoRecoveryBeforeIt(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }() // without the probes
	waiting.Until(t, func() bool { return r.Health()[0].OK() })
	g.outage(r, 401)
	for range 3 { // its pauses grow
		_, err := r.Plan(t.Context(), shopA)
		require.Error(t, err)
	}
	g.api.set(func() { g.api.outage, g.api.fields["password"] = 0, "by-hand-1234" })
	puts := g.api.count()
	r.LookNow(shopA)
	waiting.Until(t, func() bool { return g.api.count() > puts && r.Health()[0].OK() })
	stop()
	<-done
}

// A look that waits for an answer in its turn holds up no person: the API is asked for the person.
func TestAPersonDoesNotWaitForALookThatHangs(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	require.NoError(t, r.watchers[0].look(t.Context()))
	r.watchers[0].turn <- struct{}{}
	g.api.set(func() { g.api.outage = 500 })
	_, err := r.Plan(t.Context(), shopA)
	require.ErrorIs(t, err, management.ErrUnreachable)
}

// During the wait that the API asked for, a person is told until when, and nothing is sent.
func TestAPersonIsToldUntilWhenTheAPIAskedToWait(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r, _ := g.start(nil, toRelay)
	g.api.set(func() { g.api.outage, g.api.retryAfter = 429, "3600" })
	require.ErrorIs(t, r.watchers[0].look(t.Context()), management.ErrUnreachable)
	asked := g.api.requests()
	g.api.set(func() { g.api.outage = 0 })
	r.watchers[0].turn <- struct{}{} // a look waits in its turn
	until := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15")
	_, err := r.Plan(t.Context(), shopA)
	require.ErrorContains(t, err, "until "+until)
	require.ErrorIs(t, r.Rotate(t.Context(), shopA, workspace.Person{User: "ada"}, ""), management.ErrUnreachable)
	assert.Equal(t, asked, g.api.requests())
}

// An environment that is back before its 404 is confirmed was never gone for anybody: it is read
// once more, and neither its config nor the trail changes. One that is away for longer is entered
// as gone, and as back.
func TestAnEnvironmentThatBlinks(t *testing.T) {
	t.Parallel()
	for blinks := range 8 {
		g := newRig(t)
		r, _ := g.start(nil, toRelay)
		require.NoError(t, look(t, r))
		before, puts := len(g.trail.types()), g.api.count()
		g.api.set(func() { g.api.blinks = blinks })
		err := look(t, r)
		if management.GoneBy(err) == nil {
			require.NoError(t, err, "%d", blinks)
			assert.Len(t, g.trail.types(), before, "%d", blinks)
		} else {
			assert.GreaterOrEqual(t, blinks, 3, "two answers of another kind confirmed it")
		}
		g.api.set(func() { g.api.blinks = 0 })
		require.NoError(t, look(t, r))
		assert.Equal(t, puts, g.api.count(), "%d", blinks)
		assert.True(t, r.Health()[0].OK())
		if management.GoneBy(err) != nil {
			assert.Equal(t, []string{"environment.gone", "environment.back"}, g.trail.types()[before:])
		}
	}
}
