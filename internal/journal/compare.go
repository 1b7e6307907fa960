package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/history"
	"github.com/auditrelay/auditrelay/internal/pause"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streams"
)

const (
	// certainty is for how long the leader of a replicated stream must say that its
	// end went back: one that is new, or deposed and does not know it, may not have
	// the newest records yet.
	certainty = 5 * time.Second
	// certaintyPause is the wait between two looks.
	certaintyPause = 500 * time.Millisecond
	// historyFile is the history of an external stream, beside the watermarks.
	historyFile = "past"
)

// comparePast compares what is known of the events' stream with what is there.
// Where the server lost the stream's end, which it then gives to other records,
// it sets every sink back to what stayed, and names what is lost. It can be
// repeated, and has to be where it fails: a crash at any line, too, leaves the
// same to be found, as what is known changes last.
func (j *Journal) comparePast(ctx context.Context) error {
	j.comparing.Lock()
	defer j.comparing.Unlock()
	for until := time.Now().Add(certainty); ; {
		known := j.known() // before the server is asked: appends go on meanwhile
		info, err := j.stream.Info(ctx)
		if !j.conn.Embedded() && (errors.Is(err, jetstream.ErrStreamNotFound) || err == nil && info.Created.UnixNano() != j.made) {
			return j.replacedMeanwhile()
		}
		if err != nil {
			return fmt.Errorf("read the journal's state: %w", err)
		}
		switch back, err := j.wentBack(ctx, info, known); {
		case err != nil:
			return err
		case !back:
			j.history.Settle()
			return nil
		case info.Config.Replicas < 2 || time.Now().After(until):
			return j.goBack(ctx, info)
		}
		if err := pause.For(ctx, certaintyPause); err != nil {
			return err
		}
	}
}

// replacedMeanwhile ends the relay: the next start makes its streams anew where
// they are gone, and names what they had.
func (j *Journal) replacedMeanwhile() error {
	err := fmt.Errorf("%w: the stream %s was taken away, or made anew, while the relay ran; its next start goes on with what is there and names what is lost", ErrUnavailable, j.names.events)
	if j.failed != nil {
		j.failed(err)
	}
	return err
}

// presence is what became of a record.
type presence int

const (
	present  presence = iota
	replaced          // another stands there, or the stream does not reach as far
	gone              // trimmed, or lost from the middle
)

// lookAt says whether a record still is where it was.
func (j *Journal) lookAt(ctx context.Context, state jetstream.StreamState, at history.Place) (presence, error) {
	switch {
	case at.Seq > state.LastSeq:
		return replaced, nil
	case at.Seq < state.FirstSeq:
		return gone, nil
	}
	sum, err := j.sumAt(ctx, at.Seq)
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

// sumAt asks the stream's leader for the record at a position, and gives its
// checksum. Stream.GetMsg asks any replica, which may lag.
func (j *Journal) sumAt(ctx context.Context, seq uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	answer, err := j.conn.JetStream.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+j.names.events, fmt.Appendf(nil, `{"seq":%d}`, seq))
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

// openPast reads what is known of the events' stream, and compares it with what
// is there before anything is appended or read.
func (j *Journal) openPast(ctx context.Context) (err error) {
	if !j.conn.Embedded() {
		tell := func(err error) { j.conn.Watermarks.Tell(historyFile, err) }
		if j.history, err = history.Open(filepath.Join(j.conn.Watermarks.Dir(), historyFile), tell); err != nil {
			return err
		}
	}
	return streams.Await(ctx, j.log, "the end of the journal's stream", func(ctx context.Context) error {
		if err := j.nameReplaced(ctx); err != nil {
			return err
		}
		if err := j.comparePast(ctx); err != nil {
			return err
		}
		return j.begin(ctx)
	})
}

// begin notes where the stream ends, before anything is appended.
func (j *Journal) begin(ctx context.Context) error {
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	last := info.State.LastSeq
	j.history.Begin(last)
	sum, err := j.sumAt(ctx, last)
	if errors.Is(err, jetstream.ErrMsgNotFound) || last == 0 {
		return nil
	}
	if err == nil {
		j.history.Read(history.Place{Seq: last, Sum: sum})
	}
	return err
}

// nameReplaced names what a stream had that is not this one: it was taken away,
// or the servers came back without it, and it was made anew. Marks are
// lowered last, so that a crash before that leaves the same to be found.
func (j *Journal) nameReplaced(ctx context.Context) error {
	acknowledged, known := j.conn.Watermarks.Read(datadir.Acknowledged)
	if !known || j.conn.Embedded() || acknowledged.Stream == j.made {
		return nil
	}
	info, err := j.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("read the journal's state: %w", err)
	}
	had := j.conn.Watermarks.Lowest(consumerPrefix, acknowledged.Stream)
	level := slog.LevelError
	if had >= acknowledged.Value {
		level = slog.LevelWarn // nothing is missing, as after a move to another cluster
	}
	j.log.Log(ctx, level, "the journal's stream is another than before: it was taken away and made anew, or journal.url leads elsewhere",
		"stream", j.names.events, "made", info.Created, "before", time.Unix(0, acknowledged.Stream).UTC(),
		"acknowledged", acknowledged.Value, "had_by_every_sink", had)
	if had < acknowledged.Value {
		err = j.setAside(ctx, datadir.Quarantined{
			Stream: j.names.events, From: had + 1, To: acknowledged.Value, Loss: fmt.Sprintf("%016x", acknowledged.Stream),
			Reason: "the stream that held them is gone, and another has its name",
		}, nil)
		if err != nil {
			return err
		}
	}
	if err := j.history.Reset(0, info.State.LastSeq); err != nil {
		return err
	}
	return errors.Join(j.conn.Watermarks.Forget(datadir.Trimmed), j.conn.Watermarks.Forget(datadir.Acknowledged))
}

// placed makes sure that a record has a position of its own, before anybody is
// told that it is kept, and notes that: at the next start the stream must reach
// this far. A position that was another record's shows that the stream went back.
// Of an external one everything is set back to what stayed, and the record with it
// is as good as any other. An embedded one needs its files mended: errGivenTwice.
// Again says that the server had the record from an earlier attempt.
func (j *Journal) placed(at history.Place, again bool) error {
	note := datadir.Watermark{Value: at.Seq}
	fits := j.history.Given
	if again {
		fits = j.history.Read
	}
	if !fits(at) {
		if j.conn.Embedded() {
			return errGivenTwice
		}
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		defer cancel()
		if err := j.comparePast(ctx); err != nil {
			return err
		}
		if !j.history.Read(at) {
			return fmt.Errorf("position %d is said to be another record's", at.Seq)
		}
	}
	if err := j.conn.Settle(j.names.events); err != nil {
		return err
	}
	if !j.conn.Embedded() {
		note.Stream = j.made
	}
	j.conn.Watermarks.Raise(datadir.Acknowledged, note)
	return nil
}

// errGivenTwice says that the server gave a position to two records.
var errGivenTwice = errors.New("the position was another record's")

// knownEnd is what shows best, at some moment, whether the stream went back.
type knownEnd struct {
	acknowledged uint64 // of an external stream, else 0
	suspect      history.Place
	any          bool // there is a suspect
}

func (j *Journal) known() (end knownEnd) {
	if acknowledged, ok := j.conn.Watermarks.Read(datadir.Acknowledged); ok && !j.conn.Embedded() {
		end.acknowledged = acknowledged.Value
	}
	end.suspect, end.any = j.history.Suspect()
	return end
}

// wentBack says whether the stream went back behind what was known of it before the
// server was asked for info. What became known later says nothing: info does not have
// those records yet.
func (j *Journal) wentBack(ctx context.Context, info *jetstream.StreamInfo, known knownEnd) (bool, error) {
	if known.acknowledged > info.State.LastSeq {
		return true, nil
	}
	if !known.any {
		return false, nil
	}
	is, err := j.lookAt(ctx, info.State, known.suspect)
	return is == replaced, err
}

// stays is the newest known position that still has its record. Each one before
// it has too; so it can be searched by halves.
func (j *Journal) stays(ctx context.Context, state jetstream.StreamState) (uint64, error) {
	suspect, _ := j.history.Suspect()
	known := j.history.Places(min(suspect.Seq, state.LastSeq))
	var failed error
	n := sort.Search(len(known), func(i int) bool {
		if failed != nil {
			return true
		}
		is, err := j.lookAt(ctx, state, known[i])
		failed = err
		return is == replaced || is == gone && known[i].Seq >= state.FirstSeq
	})
	if failed != nil {
		return 0, failed
	}
	stays := max(state.FirstSeq, 1) - 1
	if n > 0 {
		stays = max(stays, known[n-1].Seq)
	}
	return stays, nil
}

// goBack sets everything back to what stayed of the stream.
func (j *Journal) goBack(ctx context.Context, info *jetstream.StreamInfo) error {
	stays, err := j.stays(ctx, info.State)
	if err != nil {
		return err
	}
	// First: no source may acknowledge what it read, whose positions are others' now.
	j.history.Turn(stays)
	if err := j.conn.JetStream.Conn().FlushTimeout(attemptTimeout); err != nil {
		return fmt.Errorf("set the sinks back: %w", err)
	}
	if err := j.setBack(ctx, stays); err != nil {
		return err
	}
	if err := j.nameLostEnd(ctx, stays, info.State.LastSeq); err != nil {
		return err
	}
	j.conn.Watermarks.Lower(datadir.Trimmed, datadir.Watermark{Value: stays})
	j.conn.Watermarks.Lower(datadir.Acknowledged, datadir.Watermark{Value: stays, Stream: j.made})
	return j.history.Reset(stays, info.State.LastSeq)
}

// nameLostEnd names the acknowledged positions behind what stayed.
func (j *Journal) nameLostEnd(ctx context.Context, stays, end uint64) error {
	acknowledged, _ := j.conn.Watermarks.Read(datadir.Acknowledged)
	j.log.Error("the journal's stream went back: its servers lost records that they had confirmed, and give their positions to others; every sink goes on behind what stayed, and may get duplicates",
		"stream", j.names.events, "stayed", stays, "acknowledged", acknowledged.Value, "newest", end)
	if acknowledged.Value <= stays {
		return nil
	}
	suspect, _ := j.history.Suspect()
	return j.setAside(ctx, datadir.Quarantined{
		Stream: j.names.events, From: stays + 1, To: acknowledged.Value, Loss: fmt.Sprintf("%016x", suspect.Sum),
		Reason: "the servers lost the end of the stream, and give its positions to other records",
	}, nil)
}

// setBack sets every sink that has come farther to a position, also those that
// nobody reads for.
func (j *Journal) setBack(ctx context.Context, to uint64) error {
	names := j.stream.ConsumerNames(ctx)
	for name := range names.Name() {
		if !strings.HasPrefix(name, consumerPrefix) {
			continue
		}
		consumer, err := j.stream.Consumer(ctx, name)
		if err != nil {
			return fmt.Errorf("read the position of %s: %w", name, err)
		}
		if at := consumer.CachedInfo().AckFloor.Stream; at > to {
			if _, err := j.stream.ResetConsumerToSequence(ctx, name, to+1); err != nil {
				return fmt.Errorf("set the position of %s from %d to %d: %w", name, at, to, err)
			}
		}
		j.conn.Watermarks.Lower(name, datadir.Watermark{Value: to, Stream: j.made})
	}
	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return fmt.Errorf("list the sinks' positions: %w", err)
	}
	return nil
}
