package cluster

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

	"github.com/auditrelay/auditrelay/internal/retry"
)

const (
	// startPatience is how long an open waits for the servers of a cluster.
	startPatience = 30 * time.Second
	// retryPause is the wait between two attempts.
	retryPause = 200 * time.Millisecond
)

// Codes of the server's answers (errors.json in nats-server).
const (
	codeIncomplete, codeNoPeers, codeNotAvailable, codeNotLeader, codeStreamOffline jetstream.ErrorCode = 10004, 10005, 10008, 10009, 10118
	codeAccountLimit, codeNoResources, codeStoreFailed                              jetstream.ErrorCode = 10002, 10023, 10077
	codeBatchDuplicate                                                              jetstream.ErrorCode = 10201
)

// await calls do until it succeeds or fails for good. It repeats do for startPatience after
// the failures of a cluster that is starting or that has just lost a server. A repeated do
// must be harmless. The error is that of the last call.
func await(ctx context.Context, log *slog.Logger, what string, do func(context.Context) error) error {
	told := false
	for deadline := time.Now().Add(startPatience); ; {
		err := do(ctx)
		if err == nil || ctx.Err() != nil || !isComingUp(err) || time.Now().After(deadline) {
			return err
		}
		if !told {
			told = true
			log.Warn("waiting for the journal's servers", "for", what, "at_most", startPatience, "error", err)
		}
		if retry.Sleep(ctx, retryPause) != nil {
			return err
		}
	}
}

// isComingUp recognises the answers, and the silence, of an incomplete cluster.
func isComingUp(err error) bool {
	if hasCode(err, codeIncomplete, codeNoPeers, codeNotAvailable, codeNotLeader, codeStreamOffline) {
		return true
	}
	var operation *net.OpError
	var name *net.DNSError // of a server that was not started yet
	if errors.As(err, &operation) || errors.As(err, &name) {
		return true
	}
	passing := []error{
		context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoServers, nats.ErrNoResponders,
		nats.ErrDisconnected, nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
		jetstream.ErrNoStreamResponse, // there is no leader to take the message
	}
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// hasCode reports whether err is an answer of the server with one of the codes.
func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}

// isWrongSequence recognises the refusal of a message by its expected last sequence, of the
// stream or of a subject. The answer may also mean that another write is under way, or come
// from a leader that was deposed: who gets it has to read.
func isWrongSequence(err error) bool {
	return hasCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isFull recognises a refusal for want of room: by the stream's budget, an account's limit,
// or the server's.
func isFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case codeStoreFailed:
		return strings.Contains(api.Description, "maximum bytes")
	case codeAccountLimit, codeNoResources:
		return true
	}
	return false
}
