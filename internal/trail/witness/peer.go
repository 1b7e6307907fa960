package witness

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

const (
	// askTimeout bounds one witness's part in a round, with all its requests.
	askTimeout = 10 * time.Second
	// asksPerRound bounds the requests to one witness: a second one follows if the witness is
	// at another size, and further ones if another relay moves it on meanwhile.
	asksPerRound = 4
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 64 << 10
	// unknownSize means that the witness is asked for its size, with an old size of 0.
	unknownSize = -1
)

// peer is a witness to ask. One goroutine at a time uses it.
type peer struct {
	key      string
	url      string
	verifier note.Verifier
	client   *http.Client

	signed []note.Signature // of the newest offer; nil: it has not signed this one

	old    int64     // size of its last cosigned tree, or unknownSize
	origin string    // of this tree
	most   int64     // the largest size of this origin that was cosigned for this process
	next   time.Time // after a failure, it is not asked before this time
	pause  time.Duration
}

func newPeer(c config.Witness) (*peer, error) {
	verifier, err := proof.NewCosignatureVerifier(c.Key)
	if err != nil {
		return nil, err
	}
	transport, err := c.TLS.Transport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		MaxIdleConns: 1, IdleConnTimeout: 2 * time.Minute, TLSHandshakeTimeout: askTimeout,
		MaxResponseHeaderBytes: 16 << 10,
	})
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect would turn the POST into a GET
	}}
	return &peer{key: c.Key, url: strings.TrimSuffix(c.URL, "/") + Path, verifier: verifier, client: client, old: unknownSize}, nil
}

// otherHistory is the answer of a witness that knows another history. It needs a person.
type otherHistory struct {
	reason string
	size   int64 // of the witness's last cosigned tree; 0: it did not say
}

func (r *otherHistory) Error() string { return r.reason }

var (
	// errLater means that another relay has stored and offered a later checkpoint, whose turn
	// will come.
	errLater = errors.New("the witness has cosigned a later checkpoint of another relay")
	// errForgot: the witness no longer knows a tree it has signed.
	errForgot = errors.New("the witness has lost its memory")
)

// ask asks the witness to cosign o.
func (p *peer) ask(ctx context.Context, o audit.Offer) ([]note.Signature, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if p.origin != o.Origin { // a new generation of the trail
		p.origin, p.old, p.most = o.Origin, unknownSize, 0
	}
	for range asksPerRound {
		old := max(p.old, 0)
		if old > o.Size { // it answers with its size
			old = 0
		}
		hashes, err := o.Prove(ctx, old)
		if err != nil {
			return nil, err
		}
		answer, err := p.post(ctx, Request{Old: old, Proof: hashes, Checkpoint: o.Note})
		if err != nil {
			return nil, err
		}
		if answer.status == http.StatusOK {
			return p.take(o, answer.body)
		}
		if err := p.understand(ctx, o, old, answer); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the witness is at another size after each answer")
}

// answer is an HTTP answer.
type answer struct {
	status int
	kind   string // the media type
	body   []byte
}

func (p *peer) post(ctx context.Context, r Request) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(r.Marshal()))
	if err != nil {
		return answer{}, fmt.Errorf("ask witness: %w", err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("ask witness: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // was only read
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("read the witness's answer: %w", err)
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return answer{response.StatusCode, kind, body}, nil
}

// take checks the answer's signature lines, and keeps the witness's own.
func (p *peer) take(o audit.Offer, lines []byte) ([]note.Signature, error) {
	text := proof.NoteText(o.Note)
	n, err := note.Open(slices.Concat(text, []byte("\n"), lines), note.VerifierList(p.verifier))
	if err != nil {
		return nil, fmt.Errorf("check the witness's signature: %w", err)
	}
	if n.Text != string(text) {
		return nil, errors.New("check the witness's signature: it is of another text")
	}
	for i := range n.Sigs {
		sig := &n.Sigs[i]
		if _, timed := proof.TimeOf(*sig); !timed {
			return nil, errors.New("check the witness's signature: it has no time")
		}
		raw, err := base64.StdEncoding.DecodeString(sig.Base64)
		if err != nil {
			return nil, fmt.Errorf("check the witness's signature: %w", err)
		}
		sig.Base64 = base64.StdEncoding.EncodeToString(raw) // a stranger may spell it in another way
	}
	p.old, p.most = o.Size, max(p.most, o.Size)
	return n.Sigs, nil
}

// understand reads an answer without a signature. If it returns nil, the witness is to be asked
// again with the size that was learnt.
func (p *peer) understand(ctx context.Context, o audit.Offer, old int64, a answer) error {
	said := fmt.Sprintf("the witness answered %d: %q", a.status, clipped(a.body))
	sameSize := old == o.Size
	switch {
	case a.status == http.StatusConflict && a.kind == SizeType:
		size, err := proof.ParseDecimal(strings.TrimSuffix(string(a.body), "\n"))
		if err != nil {
			return fmt.Errorf("%s: %w", said, err)
		}
		if size != old {
			return p.learn(ctx, o, size)
		}
		if !sameSize {
			return errors.New(said)
		}
		return &otherHistory{fmt.Sprintf("it has cosigned another tree of the size %d", size), size}
	case (a.status == http.StatusConflict || a.status == http.StatusUnprocessableEntity) && sameSize && old > 0:
		return &otherHistory{fmt.Sprintf("it has cosigned another tree of the size %d", old), old}
	case a.status == http.StatusUnprocessableEntity && old > 0:
		// The proof was checked against our tree, so the trees differ.
		return &otherHistory{fmt.Sprintf("it has cosigned a tree of size %d that is no part of this one", old), old}
	case a.status == http.StatusNotFound:
		return fmt.Errorf("%s; its operator has to add the trail's public key: auditrelay witness --log KEY", said)
	}
	return errors.New(said)
}

// learn takes up the size of the witness's last cosigned tree.
func (p *peer) learn(ctx context.Context, o audit.Offer, size int64) error {
	if size <= o.Size {
		p.old = size
		if size < p.most {
			forgot := fmt.Errorf("%w: it cosigned %d entries, and knows of %d; its state was set back or lost", errForgot, p.most, size)
			p.most = 0 // reported once; from here on the new state counts
			return forgot
		}
		return nil
	}
	reached, err := o.Reaches(ctx, size)
	if err != nil {
		return err
	}
	p.old = size
	if reached {
		return errLater
	}
	return &otherHistory{fmt.Sprintf("it has cosigned %d entries, and this trail has %d: the trail was set back, or entries were taken from its end", size, o.Size), size}
}

// clipped bounds a stranger's text in an error.
func clipped(text []byte) []byte { return bytes.TrimSpace(text[:min(len(text), 300)]) }

// wait counts a failure, after which the next try comes only after a growing pause.
func (p *peer) wait(now time.Time) {
	p.pause = min(max(2*p.pause, firstPause), longestPause)
	p.next = now.Add(p.pause)
}

const (
	firstPause   = time.Second
	longestPause = 2 * time.Minute
)
