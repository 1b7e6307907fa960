package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

// Of several relays on one cluster, one has the turn: it takes pushes, runs the sinks and
// writes the trail. The others stand by, and one of them goes on when it leaves or dies.

// turnJob is the job that has all work of a relay in it.
const turnJob = "relay"

// memberFile has the name under which the process takes part in the cluster. The next process
// on this data directory, which has its lock, knows by it that the one before has ended.
const memberFile = "member"

// errTurnLost ends a relay that was thought dead. It stands by after its restart.
var errTurnLost = errors.New("another relay of this cluster has taken over, since the heartbeats of this one did not arrive; restart it, and it stands by")

// awaitTurn waits until this relay has the cluster's turn. On a disk there is nobody to wait for.
func (r *process) awaitTurn(ctx context.Context) error {
	if r.cfg.Journal.URL == "" {
		return nil
	}
	path := filepath.Join(r.cfg.DataDir, NotesDir, memberFile)
	was, err := durable.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the relay's name in the cluster: %w", err)
	}
	host, _ := os.Hostname() // without it, the name is only the random part
	got, ended := make(chan *lease.Turn), make(chan error, 1)
	var stopping, has atomic.Bool
	stop := background(func(ctx context.Context) {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		ended <- lease.Run(ctx, lease.Options{
			Table: r.store.Table(), Name: host, Was: string(was), Logger: r.log,
			// It goes on while the cluster elects a leader: then nobody else can take over.
			Timing: lease.Timing{Beat: lease.DefaultTiming.Beat, Dead: lease.DefaultTiming.Dead},
			// A crash before leaves the name of an earlier process, which has ended too.
			Joining: func(self string) error { return durable.WriteFile(path, []byte(self)) },
			Jobs: map[string]lease.Work{turnJob: func(ctx context.Context, turn *lease.Turn) error {
				select {
				case got <- turn:
					has.Store(true)
				case <-ctx.Done():
					return ctx.Err()
				}
				<-ctx.Done()
				if !stopping.Load() {
					leave() // it would take the turn again, and do nothing with it while it stops
					r.fail(errTurnLost)
				}
				return ctx.Err()
			}},
		})
	})
	r.stack.push("turn in the cluster", func(ctx context.Context) error {
		stopping.Store(true)
		return stop(ctx)
	})
	r.admin.AddCheck(admin.Check{Name: "cluster", Probe: func(context.Context) (string, error) {
		if !has.Load() {
			return "", errors.New("another relay has the turn, and this one stands by")
		}
		return "this relay has the turn", nil
	}})
	r.log.Info("waiting for the turn among the cluster's relays")
	select {
	case r.turn = <-got:
		r.log.Info("this relay has the turn among the cluster's relays")
		return nil
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
