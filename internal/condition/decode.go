package condition

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Decode gives the variable "body" for a body: objects are map[string]any, of
// members that repeat a name the last; numbers are [json.Number]. It is nil for
// what is no JSON, as for null. encoding/json takes no more than 10,000 levels.
func Decode(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return v
}

// adapter makes values of what [Decode] returns when they are looked at, and
// leaves the rest to cel-go.
type adapter struct{ types.Adapter }

func newAdapter() adapter { return adapter{types.DefaultTypeAdapter} }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case json.Number:
		return number(v.String())
	}
	return a.Adapter.NativeToValue(value)
}

// number gives an integer exactly, as far as 64 bits hold it, and all other
// numbers as the nearest double. CEL compares across the three types.
func number(text string) ref.Val {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(n)
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(n)
	}
	f, _ := strconv.ParseFloat(text, 64) // ±Inf where it is too large, which is what the error says
	return types.Double(f)
}
