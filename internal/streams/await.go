// Package streams has the common needs of the rooms with state in JetStream: to wait
// for a starting cluster, and to follow a stream for as long as it takes.
//
// An external cluster may come up after the relay. While it is not whole, every call may
// fail or stay silent. So a start waits 30 s for each of its needs (connection, streams, positions, trail,
// credentials; see [Await]). Later outages end nothing: appends refuse, sources and
// followers go on.
package streams

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/pause"
)

const (
	// Patience is how long a start waits for the nodes of a cluster.
	Patience = 30 * time.Second
	// pauseBetween is the wait between two tries.
	pauseBetween = 200 * time.Millisecond
)

// Await calls do until it succeeds or fails for good. For Patience, it repeats do after
// failures typical of a starting cluster, or of one without a node for a moment. A
// repeated do must be harmless. The log names it what. The error is do's last.
func Await(ctx context.Context, log *slog.Logger, what string, do func(context.Context) error) error {
	told := false
	for deadline := time.Now().Add(Patience); ; {
		err := do(ctx)
		if err == nil || !isComingUp(err) || time.Now().After(deadline) {
			return err
		}
		if !told {
			told = true
			log.Warn("waiting for the journal's servers", "for", what, "at_most", Patience, "error", err)
		}
		if pause.For(ctx, pauseBetween) != nil {
			return err
		}
	}
}

// isComingUp recognises the answers, and the silence, of an incomplete cluster.
func isComingUp(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		// The codes of nats-server's errors.json.
		const incomplete, noPeers, notAvailable, notLeader, streamOffline, consumerOffline = 10004, 10005, 10008, 10009, 10118, 10119
		return slices.Contains([]jetstream.ErrorCode{incomplete, noPeers, notAvailable, notLeader, streamOffline, consumerOffline}, api.ErrorCode)
	}
	var operation *net.OpError
	var name *net.DNSError // of a node before its start
	if errors.As(err, &operation) || errors.As(err, &name) {
		return true
	}
	passing := []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoServers,
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, // no leader to take the message
	}
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// HeaderText makes a text fit for a message's header: one line of bounded length.
func HeaderText(s string) string {
	const limit = 1 << 10
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(line) > limit {
		line = strings.ToValidUTF8(line[:limit], "") + "…"
	}
	return line
}
