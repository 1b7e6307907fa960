package management

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// Setting reads a setting of an environment, or of a project, where the environment does not
// count. one is a value of kinds.Setting.Each, for a kind that is read value by value.
//
// An answer of another form than the kind's comes with an error and with Raw. Where a setting does
// not exist, the error may be a 404 (see [Client.Confirm]); one value of several may be null, too.
func (c *Client) Setting(ctx context.Context, s kinds.Setting, project, environment, one string) (Answer, error) {
	params := []string{project}
	if !s.OfProject {
		params = append(params, environment)
	}
	if s.Each != nil {
		params = append(params, one)
	}
	a, err := c.fetch(ctx, call{operation: s.Operation, method: http.MethodGet, path: s.Path, params: params}, s.Field, s.Shape.Opens == '[')
	none := s.Each != nil && string(a.Raw) == "null"
	if err == nil && !none && !strings.HasPrefix(string(a.Raw), string(s.Shape.Opens)) {
		err = fmt.Errorf("%s: decode %s: it is %s", s.Operation, s.Field, kindOf(a.Raw))
	}
	if of := textIn(a.Raw, s.Self); err == nil && of != "" && !strings.EqualFold(of, project) {
		return Answer{Receipt: a.Receipt}, fmt.Errorf("%s: the answer is of %q, and not of %q", s.Operation, of, project)
	}
	return a, err
}

// textIn is a member of a JSON object; "" where it is no text, or there is none.
func textIn(object json.RawMessage, name string) string {
	var members errorBody
	if name == "" || json.Unmarshal(object, &members) != nil {
		return ""
	}
	return members.text(name)
}

// kindOf tells what a JSON value is, by its first byte.
func kindOf(raw []byte) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	}
	return "neither an object, nor an array, nor a string"
}

// Project reads a project. Its success proves that the project is there.
func (c *Client) Project(ctx context.Context, project string) (Answer, error) {
	return c.Setting(ctx, kinds.Project, project, "", "")
}
