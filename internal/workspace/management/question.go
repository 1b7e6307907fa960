package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// judge decides whether the failure of a call is one of all calls. It returns err, with
// [ErrUnreachable] where it is.
func (c *Client) judge(ctx context.Context, k call, err error) error {
	if causeOf(err) == "" || ctx.Err() != nil {
		return err
	}
	if refusal := c.condemn(ctx, k.params); refusal != nil {
		return fmt.Errorf("%w; this call: %w", refusal, err)
	}
	return err
}

// Check asks whether the API can be used at all, and returns [ErrUnreachable] where it cannot. It
// is for a person who would wait for others' calls otherwise.
func (c *Client) Check(ctx context.Context) error {
	if c.breaker.isOpen() != nil {
		return c.admit(ctx, call{})
	}
	return c.condemn(ctx, nil)
}

// condemn asks whether any call can succeed, and opens the breaker where none can. It returns
// the refusal of an open one. params are those of a call that has failed, if any.
func (c *Client) condemn(ctx context.Context, params []string) error {
	select {
	case c.breaker.judging <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-c.breaker.judging }()
	if refusal := c.breaker.isOpen(); refusal != nil {
		return refusal
	}
	asked := c.ask(ctx, call{params: params})
	if cause := causeOf(asked); cause != "" && ctx.Err() == nil {
		return c.breaker.open(cause, asked)
	}
	return nil
}

const (
	// askAtMost bounds the reads of a question, and hangAtMost those without an answer in time.
	askAtMost  = 4
	hangAtMost = 2
)

// ask reads the project of k, once; it is the cheapest call, and open to every key. If
// the read fails as every call would, it makes others: the key may not read this one, or
// it is broken, or that operation alone is. A 401 is about the key and no operation.
func (c *Client) ask(ctx context.Context, k call) (err error) {
	hangs := 0
	for _, q := range c.breaker.toAsk(k) {
		if isUnauthorized(err) && q.path != kinds.ProjectPath {
			continue
		}
		err = c.askOnce(ctx, q)
		if hung(err) {
			hangs++
		}
		if cause := causeOf(err); cause == "" || cause == CauseThrottled || ctx.Err() != nil || hangs == hangAtMost {
			return err
		}
	}
	return err
}

func (c *Client) askOnce(ctx context.Context, q call) error {
	path, err := q.expand()
	if err != nil {
		return err
	}
	q.scrub, q.timeout, q.question = c.scrub, min(c.options.Timeout, probeAnswerWithin), true
	_, err = c.attempt(ctx, q, path)
	return err
}

// toAsk lists the reads of a question: of a project, the one that succeeded last, k itself,
// and other projects. None: there is nothing to ask for.
func (b *breaker) toAsk(k call) (all []call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.project
	if len(k.params) > 0 {
		own = k.params[0]
	}
	reads := []call{readOf(own), b.good, k}
	if b.good.method != "" {
		reads = append(reads, readOf(b.good.params[0]))
	}
	for _, p := range b.projects {
		reads = append(reads, readOf(p))
	}
	for _, q := range reads {
		same := func(have call) bool { return have.path == q.path && slices.Equal(have.params, q.params) }
		if q.method == http.MethodGet && q.params[0] != "" && !slices.ContainsFunc(all, same) {
			all = append(all, q)
		}
	}
	return all[:min(len(all), askAtMost)]
}

func readOf(project string) call {
	return call{operation: kinds.Project.Operation, method: http.MethodGet, path: kinds.ProjectPath, params: []string{project}}
}

// causeOf is why an error may be one of all calls; empty: it is not.
func causeOf(err error) Cause {
	var e *APIError
	switch {
	case err == nil, errors.Is(err, ErrAnswerTooLarge), isUnsent(err):
		return ""
	case errors.As(err, &e) && e.holds() > patience:
		return CauseThrottled
	case e == nil, e.Status >= 500:
		return CauseOutage
	case IsDenied(err):
		return CauseUnauthorized
	}
	return ""
}

// CauseOf sorts the errors of a call: a short text, equal for equal causes.
func CauseOf(err error) string {
	var e *APIError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrUnproven):
		return ErrUnproven.Error()
	case errors.As(err, &e) && e.Type != "":
		return fmt.Sprintf("HTTP %d %s", e.Status, e.Type)
	case errors.As(err, &e):
		return fmt.Sprintf("HTTP %d", e.Status)
	case errors.Is(err, ErrAnswerTooLarge):
		return ErrAnswerTooLarge.Error()
	case errors.Is(err, ErrNoResource):
		return ErrNoResource.Error()
	}
	return "no usable answer"
}
