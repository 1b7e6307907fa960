package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// attemptTimeout bounds one request. A change of leader takes some seconds.
const attemptTimeout = 5 * time.Second

// errMissing means that the leader has no such message.
var errMissing = errors.New("there is no such message")

// message is what a server keeps.
type message struct {
	seq     uint64
	subject string
	data    []byte
}

// query asks for a message: the first one from Seq on, or the last one of a subject.
type query struct {
	Seq    uint64 `json:"seq,omitempty"`
	Next   string `json:"next_by_subj,omitempty"`
	LastOf string `json:"last_by_subj,omitempty"`
}

// patiently asks the leader of a stream. While the store is young, it asks until there is a leader:
// a relay that starts during an election would end otherwise.
func patiently[T any](ctx context.Context, s *Store, stream string, ask func(context.Context) (T, error)) (got T, err error) {
	if time.Since(s.opened) > startPatience {
		return ask(ctx)
	}
	err = await(ctx, s.log, "the leader of stream "+stream, func(ctx context.Context) (err error) {
		got, err = ask(ctx)
		return err
	})
	return got, err
}

// ask asks the leader of a stream, and nobody else, for a message. The client's own
// functions may ask any replica, which may lag.
func (s *Store) ask(ctx context.Context, stream string, q query) (message, error) {
	return patiently(ctx, s, stream, func(ctx context.Context) (message, error) { return s.askOnce(ctx, stream, q) })
}

func (s *Store) askOnce(ctx context.Context, stream string, q query) (message, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	request, err := json.Marshal(q)
	if err != nil {
		return message{}, err
	}
	answer, err := s.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return message{}, s.closedOr(fmt.Errorf("read stream %s: %w", stream, err))
	}
	var got struct {
		Message *struct {
			Seq     uint64 `json:"seq"`
			Subject string `json:"subject"`
			Data    []byte `json:"data"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return message{}, fmt.Errorf("read stream %s: %w", stream, err)
	}
	switch {
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return message{}, errMissing
	case got.Error != nil:
		return message{}, fmt.Errorf("read stream %s: %w", stream, got.Error)
	case got.Message == nil:
		return message{}, fmt.Errorf("read stream %s: %w", stream, nats.ErrInvalidMsg)
	}
	return message{got.Message.Seq, got.Message.Subject, got.Message.Data}, nil
}

// next asks the leader for the first message from a sequence on.
func (s *Store) next(ctx context.Context, stream string, seq uint64) (message, error) {
	return s.nextOf(ctx, stream, seq, ">")
}

// nextOf asks the leader for the first message from a sequence on that stands at one of some subjects.
func (s *Store) nextOf(ctx context.Context, stream string, seq uint64, subjects string) (message, error) {
	return s.ask(ctx, stream, query{Seq: max(seq, 1), Next: subjects})
}

// info asks the leader of a stream for its state.
func (s *Store) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	return patiently(ctx, s, stream, func(ctx context.Context) (*jetstream.StreamInfo, error) { return s.infoOnce(ctx, stream) })
}

func (s *Store) infoOnce(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	handle, err := s.js.Stream(ctx, stream)
	if err != nil {
		return nil, s.closedOr(fmt.Errorf("ask for stream %s: %w", stream, err))
	}
	return handle.CachedInfo(), nil
}

// subjects asks the leader of a stream which subjects have messages.
func subjects(ctx context.Context, stream jetstream.Stream) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, fmt.Errorf("ask which subjects have messages: %w", err)
	}
	return slices.Collect(maps.Keys(info.State.Subjects)), nil
}
