package management

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// Receipt comes with every success answer.
type Receipt struct {
	RequestID  string
	StatusCode int // the HTTP status
}

// Answer is a success answer with a resource.
type Answer[T any] struct {
	Receipt
	Value T
	// Raw is the resource's JSON as received, except for secrets.
	Raw json.RawMessage
}

// fetch makes the call and decodes the resource under field in the answer. An error after
// a 2xx comes with the receipt: a write has had its effect then. If only the typed value
// was undecodable, it comes with Raw too.
func fetch[T any](ctx context.Context, c *Client, k call, field string, decode func(json.RawMessage, *T) error) (Answer[T], error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, err := c.send(ctx, k)
	if err != nil {
		return Answer[T]{}, err
	}
	members, receipt, err := r.members(k.scrub)
	if err != nil {
		return Answer[T]{Receipt: receipt}, fmt.Errorf("%s: %w", k.operation, err)
	}
	raw, ok := members[field]
	if !ok {
		return Answer[T]{Receipt: receipt}, fmt.Errorf("%s: %w", k.operation, &noResource{receipt, field})
	}
	a := Answer[T]{Receipt: receipt, Raw: k.scrub.cleanRaw(raw)}
	if c.untyped {
		return a, nil
	}
	if err := decode(raw, &a.Value); err != nil {
		return a, fmt.Errorf("%s: decode %s: %w", k.operation, field, k.scrub.cleanError(err))
	}
	return a, nil
}

// receive makes a call and returns the receipt, the whole of its answer.
func (c *Client) receive(ctx context.Context, k call) (Receipt, error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, err := c.send(ctx, k)
	if err != nil {
		return Receipt{}, err
	}
	_, receipt, err := r.members(k.scrub)
	if err != nil {
		return receipt, fmt.Errorf("%s: %w", k.operation, err)
	}
	return receipt, nil
}

// members splits the answer's object. An empty body is an empty object: any 2xx is a
// success, also 204.
func (r reply) members(scrub *scrubber) (map[string]json.RawMessage, Receipt, error) {
	receipt := Receipt{StatusCode: r.status}
	if len(r.body) == 0 {
		return nil, receipt, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &members); err != nil {
		return nil, receipt, fmt.Errorf("decode the answer: %w", err)
	}
	receipt.RequestID = plaintext.Line(scrub.clean(errorBody(members).text("request_id")), maxErrorText)
	return members, receipt, nil
}

// plain decodes a value by its JSON tags.
func plain[T any](raw json.RawMessage, v *T) error { return json.Unmarshal(raw, v) }
