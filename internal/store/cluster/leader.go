package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Data    []byte `json:"data"`
}

// query asks for a message: the first one from Seq on, or the last one of a subject.
type query struct {
	Seq    uint64 `json:"seq,omitempty"`
	Next   string `json:"next_by_subj,omitempty"`
	LastOf string `json:"last_by_subj,omitempty"`
}

// patiently asks the leader of a stream. While the store is young, it asks until there is a leader:
// a relay that starts during an election would end otherwise.
func (s *Store) patiently(ctx context.Context, stream string, ask func(context.Context) error) error {
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		return ask(ctx)
	}
	if time.Since(s.opened) > startPatience {
		return s.closedOr(once(ctx))
	}
	return s.closedOr(await(ctx, s.log, "the leader of stream "+stream, once))
}

// ask asks the leader of a stream, and nobody else, for a message. The client's own
// functions may ask any replica, which may lag.
func (s *Store) ask(ctx context.Context, stream string, q query) (m message, err error) {
	err = s.patiently(ctx, stream, func(ctx context.Context) (err error) {
		m, err = s.askOnce(ctx, stream, q)
		return err
	})
	return m, err
}

func (s *Store) askOnce(ctx context.Context, stream string, q query) (message, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return message{}, err
	}
	answer, err := s.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return message{}, fmt.Errorf("read stream %s: %w", stream, err)
	}
	var got struct {
		Message *message            `json:"message"`
		Error   *jetstream.APIError `json:"error"`
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
	return *got.Message, nil
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
func (s *Store) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = s.patiently(ctx, stream, func(ctx context.Context) error {
		handle, err := s.js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("ask for stream %s: %w", stream, err)
		}
		info = handle.CachedInfo()
		return nil
	})
	return info, err
}
