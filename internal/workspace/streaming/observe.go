package streaming

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// observation is one look at an environment's configs at the API.
type observation struct {
	shape    *Shape // nil if it streams nowhere
	status   management.StreamingStatus
	raw      json.RawMessage // as received, canonical; nil if there is no config
	began    time.Time       // the first read
	at       time.Time       // after the last one
	requests []string        // the ids of the requests that it took
	repeated bool            // it streams nowhere, as before, and this was not proven again

	// second is the config of the other destination type, if both types have one, otherwise
	// nil. secondErr says why it is not known.
	second    json.RawMessage
	secondErr error

	differs []string // from the desired config
}

// destination returns where the stream ends, with its host name or site; it is empty for
// nowhere.
func (o observation) destination() (management.DestinationType, string) {
	if o.shape == nil {
		return "", ""
	}
	return o.shape.Type, cmp.Or(o.shape.Hostname, o.shape.Site)
}

// found is the config of one destination type.
type found struct {
	shape   *Shape // nil: none
	status  management.StreamingStatus
	raw     json.RawMessage
	receipt management.Receipt
	absent  error // the 404, which is not judged yet
	empty   bool  // a success answer without a destination
}

// errImplausible marks a success answer that cannot be true. It changes nothing, neither in the
// trail nor in the config.
var errImplausible = errors.New("implausible answer")

// observe reads the configs, and once more where an environment has come back between a 404 and the
// read that was to confirm it.
func (w *watcher) observe(ctx context.Context) (observation, error) {
	o, err := w.observeOnce(ctx)
	if errors.Is(cmp.Or(err, o.secondErr), management.ErrBack) {
		return w.observeOnce(ctx)
	}
	return o, err
}

// observeOnce reads the configs of both destination types. The first is the desired type, and its
// config is the environment's; if it has none, the other's is.
//
// The desired type is read last. If this read finds a config, the environment exists, so that
// the other type's 404 is believed without a further request. Neither does an environment need
// one if it still streams nowhere.
//
// Only a 404 means that a config which the trail knows is gone. A success answer without a
// destination, such as a broken proxy gives, means nothing then.
func (w *watcher) observeOnce(ctx context.Context) (o observation, err error) {
	began := time.Now()
	defer func() { o.began = began }()
	other, otherErr := w.read(ctx, w.types[1])
	main, err := w.read(ctx, w.types[0])
	if err == nil && otherErr == nil {
		err = w.sort(&main, &other)
	}
	if err != nil {
		return observation{}, err
	}
	if w.nowhere && management.NamesResource(main.absent) && management.NamesResource(other.absent) {
		return observation{at: time.Now(), requests: []string{management.RequestOf(main.absent), management.RequestOf(other.absent)}, repeated: true}, nil
	}
	if main.absent != nil {
		if main.receipt, err = w.believe(w.options.Client.Confirm(ctx, w.env.Project, w.env.Environment, main.absent)); err != nil {
			return observation{}, err
		}
	}
	if otherErr == nil && other.absent != nil {
		_, otherErr = w.believe(management.ConfirmBy(main.receipt, other.absent))
	}
	if main.shape != nil && otherErr == nil && other.empty {
		otherErr = w.unknownSoFar(ctx, SubjectSecond, w.types[1])
	}
	if main.shape == nil {
		if otherErr == nil && other.shape == nil && (main.empty || other.empty) {
			otherErr = w.unknownSoFar(ctx, Subject, w.types[0])
		}
		if otherErr != nil {
			return observation{}, otherErr
		}
		if other.shape != nil && w.observed() {
			// If the relay desires no type, the one with a config is read last from now on.
			w.types[0], w.types[1] = w.types[1], w.types[0]
		}
		return w.seen(other, found{}, nil, main.receipt), nil
	}
	return w.seen(main, other, otherErr, other.receipt), nil
}

// sort gives each answer to its type. A server that ignores the type of a read answers both
// with the same config, which is then one config and not two.
func (w *watcher) sort(main, other *found) error {
	if main.shape != nil && other.shape != nil && main.shape.Type == other.shape.Type {
		if main.shape.Type == w.types[0] {
			*other = found{receipt: other.receipt}
		} else {
			*main = found{receipt: main.receipt}
		}
		return nil
	}
	for i, f := range []*found{main, other} {
		if t := w.types[i]; f.shape != nil && f.shape.Type != t {
			return fmt.Errorf("read event log streaming: %w: asked for %s, the API showed a config of type %s (request %s); it changes nothing",
				errImplausible, t, f.shape.Type, f.receipt.RequestID)
		}
	}
	return nil
}

// unknownSoFar is an error where the trail has a config of the subject.
func (w *watcher) unknownSoFar(ctx context.Context, subject string, t management.DestinationType) error {
	last, found, err := w.options.Recorder.Last(ctx, w.env.Project, w.env.Environment, subject)
	if err != nil {
		return fmt.Errorf("read the newest entry of the streaming config: %w", err)
	}
	if !found || last.After == nil {
		return nil
	}
	return fmt.Errorf("read event log streaming: %w: the config of type %s has no destination any more, and no 404 says that it is gone; it changes nothing",
		errImplausible, t)
}

// seen joins the config of the environment, and a second one, if there is any.
func (w *watcher) seen(main, second found, secondErr error, also management.Receipt) observation {
	o := observation{
		shape: main.shape, status: main.status, raw: main.raw, at: time.Now(), second: second.raw, secondErr: secondErr,
	}
	for _, r := range []management.Receipt{main.receipt, also} {
		if r.RequestID != "" {
			o.requests = append(o.requests, r.RequestID)
		}
	}
	return o
}

// believe treats a 404 of a config that is believed as an answer, with the receipt of the
// parent's read. If the environment does not exist, that is still an error.
func (w *watcher) believe(err error) (management.Receipt, error) {
	var a *management.Absence
	if !errors.As(err, &a) || a.WholeEnvironment {
		return management.Receipt{}, err
	}
	return management.Receipt{RequestID: a.ParentRequestID}, nil
}

// read reads the config of one destination type.
func (w *watcher) read(ctx context.Context, t management.DestinationType) (found, error) {
	a, err := w.options.Client.EventLogStreaming(ctx, w.env.Project, w.env.Environment, t)
	if management.IsNotFound(err) || errors.Is(err, management.ErrNoResource) {
		return found{absent: err, empty: errors.Is(err, management.ErrNoResource)}, nil
	}
	if err != nil {
		return found{}, err
	}
	f := found{shape: a.Shape, status: a.Status, receipt: a.Receipt}
	if f.shape == nil || isEmpty(f.shape) {
		return found{receipt: a.Receipt, empty: true}, nil
	}
	if f.raw, err = jsontext.Canonical(a.Raw); err != nil {
		return found{}, fmt.Errorf("keep the streaming config: %w", err)
	}
	return f, nil
}

// isEmpty reports whether nobody could send events there.
func isEmpty(s *Shape) bool {
	switch s.Type {
	case management.GrafanaLoki:
		return s.Hostname == ""
	case management.Datadog:
		return s.Site == "" && s.LastFour == ""
	}
	return false
}
