package witness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// CosignOptions say whom to ask.
type CosignOptions struct {
	// Witnesses are those of a validated configuration, at least one.
	Witnesses []config.Witness
	// Quorum is how many of them have to cosign a checkpoint.
	Quorum int
	// Patience is how long a quorum may be missing before an alarm.
	Patience time.Duration
	// Logger and Registerer must be set.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Cosigner asks the witnesses of one trail.
type Cosigner struct {
	quorum   int
	patience time.Duration
	log      *slog.Logger
	metrics  *cosignMetrics
	// Run's own.
	peers []*peer
	trail *audit.Trail // takes entries about witnesses

	mu      sync.Mutex  // guards the fields below
	states  []peerState // of peers
	missing time.Time   // since when a quorum is missing; zero while there is one
	alarmed bool        // the missing quorum was logged
}

// peerState is a witness's state, for people.
type peerState struct {
	Witness string `json:"witness"`
	URL     string `json:"url"`
	// Size is of the tree cosigned last for this process, At the time of the signature.
	Size int64     `json:"size"`
	At   time.Time `json:"at,omitzero"`
	// Failure is why it does not cosign at present. Refused is set if it knows another history.
	Failure string `json:"failure,omitempty"`
	Refused bool   `json:"refused"`
}

// NewCosigner makes a Cosigner. It asks nobody yet.
func NewCosigner(o CosignOptions) (*Cosigner, error) {
	c := &Cosigner{quorum: o.Quorum, patience: o.Patience, log: o.Logger, metrics: newCosignMetrics(o.Registerer)}
	for i, w := range o.Witnesses {
		p, err := newPeer(w)
		if err != nil {
			return nil, fmt.Errorf("audit.witnesses[%d]: %w", i, err)
		}
		c.peers = append(c.peers, p)
		c.states = append(c.states, peerState{Witness: p.key, URL: w.URL})
		c.metrics.begin(p.verifier.Name())
	}
	return c, nil
}

// cosignAgain is the wait before a checkpoint is offered again.
const cosignAgain = time.Second

// Run has each newest checkpoint of a trail cosigned, until ctx ends. A slow witness delays no
// append and no signature.
func (c *Cosigner) Run(ctx context.Context, trail *audit.Trail) {
	c.trail = trail
	again := time.NewTimer(cosignAgain)
	defer again.Stop()
	var o audit.Offer
	var unkept []byte // the note of o with signatures that could not be kept
	for {
		select {
		case <-ctx.Done():
			return
		case o = <-trail.Offers():
		case <-again.C:
			o.Again = true
		}
		if o.Size == 0 {
			continue
		}
		again.Stop()
		text, err := c.cosign(ctx, o)
		if text == nil && o.Again {
			text = unkept
		}
		failing := unkept != nil
		if unkept = nil; text != nil {
			if kept := trail.KeepCosigned(ctx, o, text); kept != nil {
				unkept, err = text, errors.Join(err, kept)
				if !failing && ctx.Err() == nil {
					c.log.Error("a cosigned checkpoint cannot be kept; it is tried again", "error", kept)
				}
			}
		}
		if err != nil {
			again.Reset(cosignAgain)
			continue
		}
		trail.Cosigned(o)
	}
}

// cosign asks all witnesses to sign a checkpoint, and returns its note with the signatures that
// it got, or nil if none is new. The error says who did not sign.
func (c *Cosigner) cosign(ctx context.Context, o audit.Offer) ([]byte, error) {
	c.waitForQuorum(time.Now())
	answers := c.askAll(ctx, o)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var signatures []note.Signature
	var failed []error
	signed, fresh := 0, 0
	for i, a := range answers {
		if a.fresh {
			fresh++
			c.succeeded(i, o)
		}
		var err error
		if a.err != nil {
			err = c.failed(ctx, i, o, a.err)
		} else {
			signed++
			signatures = append(signatures, a.signatures...)
			err = c.enter(ctx, i, o, nil)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.peers[i].verifier.Name(), err))
		}
	}
	c.countQuorum(signed, time.Now())
	if fresh == 0 {
		return nil, errors.Join(failed...)
	}
	text, err := c.join(o.Note, signatures)
	return text, errors.Join(append(failed, err)...)
}

// outcome is of one witness in one round.
type outcome struct {
	signatures []note.Signature
	fresh      bool // they are of this round
	err        error
}

// askAll asks the witnesses at once, except those that failed a moment ago or have signed the
// same offer.
func (c *Cosigner) askAll(ctx context.Context, o audit.Offer) []outcome {
	all := make([]outcome, len(c.peers))
	now := time.Now()
	var asking sync.WaitGroup
	for i, p := range c.peers {
		if !o.Again {
			p.signed = nil
		}
		switch {
		case p.signed != nil:
			all[i] = outcome{signatures: p.signed}
		case now.Before(p.next):
			all[i] = outcome{err: errNotAsked}
		default:
			asking.Go(func() {
				p.signed, all[i].err = p.ask(ctx, o)
				all[i].signatures, all[i].fresh = p.signed, p.signed != nil
			})
		}
	}
	asking.Wait()
	return all
}

// errNotAsked means that it failed a moment ago.
var errNotAsked = errors.New("it is asked again in a moment")

// join adds signatures to a note, each in the place of its signer's older one.
func (c *Cosigner) join(signed []byte, more []note.Signature) ([]byte, error) {
	_, err := note.Open(signed, note.VerifierList())
	unverified, is := errors.AsType[*note.UnverifiedNoteError](err)
	if !is { // nobody's signature counts here
		return nil, fmt.Errorf("join cosignatures: %w", err)
	}
	n := unverified.Note
	n.Sigs = slices.DeleteFunc(n.UnverifiedSigs, func(old note.Signature) bool {
		return slices.ContainsFunc(more, func(s note.Signature) bool { return s.Name == old.Name && s.Hash == old.Hash })
	})
	n.Sigs, n.UnverifiedSigs = append(n.Sigs, more...), nil
	text, err := note.Sign(n)
	if err != nil {
		return nil, fmt.Errorf("join cosignatures: %w", err)
	}
	return text, nil
}

// succeeded records a witness's signature.
func (c *Cosigner) succeeded(i int, o audit.Offer) {
	p := c.peers[i]
	p.pause, p.next = 0, time.Time{}
	c.metrics.cosigned(p.verifier.Name(), o.Size)
	c.mu.Lock()
	before := c.states[i]
	c.states[i] = peerState{Witness: before.Witness, URL: before.URL, Size: o.Size, At: time.Now()}
	c.mu.Unlock()
	if before.Failure != "" {
		c.log.Info("a witness cosigns checkpoints again", "witness", p.verifier.Name(), "size", o.Size)
	}
}

// enter has the trail say that a witness refuses, or that it agrees again.
func (c *Cosigner) enter(ctx context.Context, i int, o audit.Offer, refused *otherHistory) error {
	if c.trail == nil {
		return nil
	}
	e := audit.WitnessRefusal{Witness: c.peers[i].key, Origin: o.Origin, Size: o.Size, Root: o.Root, Checkpoint: string(o.Note)}
	kind := audit.TypeWitnessAgreed
	if refused != nil {
		e.Reason, e.WitnessSize, kind = refused.reason, refused.size, audit.TypeWitnessRefused
	}
	if err := c.trail.RecordWitness(ctx, kind, e); err != nil {
		return fmt.Errorf("enter its answer into the trail: %w", err)
	}
	return nil
}

// failed records a witness's failure, and raises the alarm about a refusal. It returns the
// failure.
func (c *Cosigner) failed(ctx context.Context, i int, o audit.Offer, err error) error {
	p := c.peers[i]
	if errors.Is(err, errNotAsked) || errors.Is(err, errLater) {
		return err
	}
	p.wait(time.Now())
	refused, is := errors.AsType[*otherHistory](err)
	c.mu.Lock()
	before := c.states[i]
	c.states[i].Failure, c.states[i].Refused = err.Error(), is
	c.mu.Unlock()
	if !is {
		c.metrics.fails(p.verifier.Name(), 1, 0)
		if before.Failure == "" {
			c.log.Warn("a witness does not cosign checkpoints; it is asked again", "witness", p.verifier.Name(), "error", err)
		}
		return err
	}
	c.metrics.fails(p.verifier.Name(), 1, 1)
	if !before.Refused {
		c.log.Error("a witness knows another history of the audit trail: it was set back to an older copy, or somebody with its key shows two histories",
			"witness", p.verifier.Name(), "reason", refused.reason, "origin", o.Origin, "size", o.Size, "root", o.Root.String())
	}
	return errors.Join(err, c.enter(ctx, i, o, refused))
}
