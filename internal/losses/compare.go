package losses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
)

const (
	// For certainty, the leader of a replicated stream must confirm the earlier end: a new
	// or a deposed leader may lack the newest records.
	certainty = 5 * time.Second
	// certaintyPause is the wait between two looks.
	certaintyPause = 500 * time.Millisecond
	// placeTimeout bounds the comparison behind an append.
	placeTimeout = 15 * time.Second
)

// ErrReplaced means another events' stream than the opened one.
var ErrReplaced = errors.New("the events' stream was taken away, or made anew, while the relay ran")

// Compare holds the events' stream against the history. If the server lost the stream's
// end, Compare sets every sink back to the remaining records, and names the lost ones.
// The caller repeats it after an error. The history changes last, so a crash at any line
// leaves the same finding.
func (l *Ledger) Compare(ctx context.Context) error {
	l.comparing.Lock()
	defer l.comparing.Unlock()
	for until := time.Now().Add(certainty); ; {
		known := l.known() // first: appends go on meanwhile
		info, err := l.stream.Info(ctx)
		if !l.conn.Embedded() && (errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && info.Created.UnixNano() != l.made) {
			return l.replacedMeanwhile()
		}
		if err != nil {
			return fmt.Errorf("read the journal's state: %w", err)
		}
		switch back, err := l.wentBack(ctx, info, known); {
		case err != nil:
			return err
		case !back:
			l.History.Settle()
			return nil
		case info.Config.Replicas < 2 || time.Now().After(until):
			return l.goBack(ctx, info)
		}
		if err := pause.For(ctx, certaintyPause); err != nil {
			return err
		}
	}
}

// replacedMeanwhile ends the relay: the next start makes a missing stream anew, and names
// the positions of the old one.
func (l *Ledger) replacedMeanwhile() error {
	err := fmt.Errorf("%w: the next start goes on with stream %s as it is, and names the lost records", ErrReplaced, l.layout.Events)
	if l.failed != nil {
		l.failed(err)
	}
	return err
}

// presence is the state of a noted record.
type presence int

const (
	present  presence = iota
	replaced          // another stands there, or the stream does not reach as far
	gone              // trimmed, or lost from the middle
)

// lookAt says whether a record is still at its place.
func (l *Ledger) lookAt(ctx context.Context, state jetstream.StreamState, at history.Place) (presence, error) {
	switch {
	case at.Seq > state.LastSeq:
		return replaced, nil
	case at.Seq < state.FirstSeq:
		return gone, nil
	}
	sum, err := l.sumAt(ctx, at.Seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return gone, nil
	case err != nil:
		return 0, err
	case sum != at.Sum:
		return replaced, nil
	}
	return present, nil
}

// sumAt asks the stream's leader for the record at a position, and returns its checksum.
// Stream.GetMsg would ask any replica, and one may lag.
func (l *Ledger) sumAt(ctx context.Context, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, streamserver.PublishTimeout)
	defer cancel()
	answer, err := l.conn.JetStream.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+l.layout.Events, fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return 0, fmt.Errorf("read record %d: %w", seq, err)
	}
	var got struct {
		Message *struct {
			Data []byte `json:"data"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return 0, fmt.Errorf("read record %d: %w", seq, err)
	}
	switch {
	case got.Error != nil && got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return 0, fmt.Errorf("read record %d: %w", seq, jetstream.ErrMsgNotFound)
	case got.Error != nil:
		return 0, fmt.Errorf("read record %d: %w", seq, got.Error)
	case got.Message == nil:
		return 0, fmt.Errorf("read record %d: %w", seq, nats.ErrInvalidMsg)
	}
	return record.Checksum(got.Message.Data), nil
}

// Place notes the position of a record before its sender's 2xx: the next start expects a
// stream of this length. If the position was another record's, the stream went back. Then
// Place compares an external stream with the history; this may free the position. An
// embedded one needs its files mended: ErrGivenTwice. again: the server had the record
// from an earlier attempt.
func (l *Ledger) Place(at history.Place, again bool) error {
	note := datadir.Watermark{Value: at.Seq}
	fits := l.History.Given
	if again {
		fits = l.History.Read
	}
	if !fits(at) {
		if l.conn.Embedded() {
			return ErrGivenTwice
		}
		ctx, cancel := context.WithTimeout(context.Background(), placeTimeout)
		defer cancel()
		if err := l.Compare(ctx); err != nil {
			return err
		}
		if !l.History.Read(at) {
			return fmt.Errorf("position %d is said to be another record's", at.Seq)
		}
	}
	if err := l.conn.Settle(l.layout.Events); err != nil {
		return err
	}
	if !l.conn.Embedded() {
		note.Stream = l.made
	}
	l.conn.Watermarks.Raise(datadir.Acknowledged, note)
	return nil
}

// ErrGivenTwice means an embedded server that gave a position to two records.
var ErrGivenTwice = errors.New("the position was another record's")

// knownEnd is the best evidence, at some moment, of a stream gone back.
type knownEnd struct {
	acknowledged uint64 // of an external stream, else 0
	suspect      history.Place
	any          bool // there is a suspect
}

func (l *Ledger) known() (end knownEnd) {
	if acknowledged, ok := l.conn.Watermarks.Read(datadir.Acknowledged); ok && !l.conn.Embedded() {
		end.acknowledged = acknowledged.Value
	}
	end.suspect, end.any = l.History.Suspect()
	return end
}

// wentBack says whether the stream of info went back behind its known end. known must be
// older than info, as info has no later records.
func (l *Ledger) wentBack(ctx context.Context, info *jetstream.StreamInfo, known knownEnd) (bool, error) {
	if known.acknowledged > info.State.LastSeq {
		return true, nil
	}
	if !known.any {
		return false, nil
	}
	is, err := l.lookAt(ctx, info.State, known.suspect)
	return is == replaced, err
}
