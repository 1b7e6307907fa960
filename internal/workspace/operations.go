package workspace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// Scope is what an operation is about: its target.
type Scope int

// The scopes.
const (
	OfWorkspace Scope = iota
	OfProject
	OfEnvironment
)

// call performs a request at the API. The raw result has no secrets.
type call func(ctx context.Context, c *management.Client, r Request) (management.Answer, error)

// Operation is one row of the API's document.
type Operation struct {
	Scope    Scope
	Needs    []string // the arguments with a value, always
	MayHave  []string // further arguments
	Secret   bool     // needs a secret
	validate func(Request) error

	// read reads the state; nil where the API shows none. mayLack: a 404 means there is
	// no such state.
	read    call
	mayLack bool
	// do changes something; nil for a reading operation. plan tells the changes to the
	// state in sentences.
	do   call
	plan func(r Request, before json.RawMessage) []string
}

const streamingSet = "streaming.set"

// The arguments of redirect_urls.set_types, except for the URL. The lists are separated by
// commas; an empty one, given, has no types.
const (
	argTypes        = "types"
	argDefaultTypes = "default_types"
	argDoNotPromote = "do_not_promote_defaults"
)

// operations are the API's, by their names in the entries: those below, and one to read each setting
// that has a command of its own (see [kinds.Setting.Command]). The commands of `auditrelay workspace`
// are made from them.
var operations = func() map[string]Operation {
	all := maps.Clone(special)
	for _, s := range kinds.Of(false) {
		if s.Command != "" {
			all[s.Command] = Operation{Scope: OfEnvironment, read: reads(s)}
		}
	}
	return all
}()

// Operations are all operations, by their names: see [Request].
func Operations() map[string]Operation { return maps.Clone(operations) }

// Changes reports whether the operation changes something.
func (op Operation) Changes() bool { return op.do != nil }

var special = map[string]Operation{
	"project.get": {Scope: OfProject, read: reads(kinds.Project)},
	"project.rename": {
		Scope: OfProject, Needs: []string{"name"}, read: reads(kinds.Project),
		do: changes(management.RenameProject, func(r Request) any { return map[string]string{"name": r.Arguments["name"]} }),
		plan: func(r Request, before json.RawMessage) []string {
			return []string{fmt.Sprintf("the name of project %s: %s → %q", r.Project, member(before, "name"), r.Arguments["name"])}
		},
	},
	"project.create": {
		Scope: OfWorkspace, Needs: []string{"name", "vertical"},
		do: func(ctx context.Context, c *management.Client, r Request) (management.Answer, error) {
			return c.CreateProject(ctx, r.Arguments["name"], r.Arguments["vertical"])
		},
		plan: says("a project with the name %[1]q and the vertical %[2]s is created; the API has no operation to delete it", "name", "vertical"),
	},
	"redirect_urls.set_types": {
		Scope: OfEnvironment, Needs: []string{"url"}, MayHave: []string{argTypes, argDefaultTypes, argDoNotPromote}, validate: validateTypes,
		do:   changes(management.UpdateRedirectURL, func(r Request) any { return redirectTypes(r) }, "url"),
		plan: planTypes,
	},
	"templates.list":        {Scope: OfProject, read: reads(kinds.EmailTemplates)},
	"templates.default.get": {Scope: OfProject, Needs: []string{"type"}, read: reads(kinds.DefaultEmailTemplates)},
	"templates.default.unset": {
		Scope: OfProject, Needs: []string{"type"}, read: reads(kinds.DefaultEmailTemplates),
		do: changes(management.UnsetDefaultEmailTemplate, nil, "type"),
		plan: func(r Request, before json.RawMessage) []string {
			return []string{fmt.Sprintf("the default %s template of project %s: %s → none", r.Arguments["type"], r.Project, before)}
		},
	},
	"secret.delete": {
		Scope: OfEnvironment, Needs: []string{"secret_id"},
		do:   changes(management.DeleteSecret, nil, "secret_id"),
		plan: says("the secret %[1]q is deleted: whoever uses it is refused from then on (the API cannot show it first)", "secret_id"),
	},
	"public_token.delete": {
		Scope: OfEnvironment, Needs: []string{"public_token"},
		do:   changes(management.DeletePublicToken, nil, "public_token"),
		plan: says("the public token %[1]q is deleted: whoever uses it is refused from then on (the API cannot show it first)", "public_token"),
	},
	"streaming.get": {Scope: OfEnvironment, Needs: []string{"type"}, read: readStreaming},
	streamingSet: {
		Scope: OfEnvironment, Needs: []string{"type"}, MayHave: []string{"hostname", "username", "site"}, Secret: true,
		validate: validateDestination, read: readStreaming, mayLack: true,
		do: func(ctx context.Context, c *management.Client, r Request) (management.Answer, error) {
			a, err := c.SetEventLogStreaming(ctx, r.Project, r.Environment, destination(r.Arguments), r.Secret)
			return a.Answer, err
		},
		plan: planStreaming,
	},
}

// check holds r against the operation's needs.
func (op Operation) check(r Request) error {
	switch {
	case op.Scope != OfWorkspace && r.Project == "":
		return errors.New("it needs a project")
	case op.Scope == OfEnvironment && r.Environment == "":
		return errors.New("it needs an environment")
	case op.Scope == OfWorkspace && r.Project != "", op.Scope != OfEnvironment && r.Environment != "":
		return errors.New("it takes no such project or environment")
	case op.Secret == r.Secret.Empty():
		return fmt.Errorf("secret given: %t, needed: %t", !r.Secret.Empty(), op.Secret)
	}
	for _, name := range op.Needs {
		if r.Arguments[name] == "" {
			return fmt.Errorf("it needs the argument %q", name)
		}
	}
	for name := range r.Arguments {
		if !slices.Contains(op.Needs, name) && !slices.Contains(op.MayHave, name) {
			return fmt.Errorf("it takes no argument %q", name)
		}
	}
	if op.validate != nil {
		return op.validate(r)
	}
	return nil
}

// reads makes the call that reads a setting, or one of its values.
func reads(s kinds.Setting) call {
	return func(ctx context.Context, c *management.Client, r Request) (management.Answer, error) {
		return c.Setting(ctx, s, r.Project, r.Environment, r.Arguments["type"])
	}
}

// changes makes the call of a change. body makes its body, if it has one; the named arguments are its
// last parameters.
func changes(change management.Change, body func(Request) any, names ...string) call {
	return func(ctx context.Context, c *management.Client, r Request) (management.Answer, error) {
		params := []string{r.Project}
		if r.Environment != "" {
			params = append(params, r.Environment)
		}
		for _, name := range names {
			params = append(params, r.Arguments[name])
		}
		var content any
		if body != nil {
			content = body(r)
		}
		return c.Change(ctx, change, content, params...)
	}
}

func readStreaming(ctx context.Context, c *management.Client, r Request) (management.Answer, error) {
	a, err := c.EventLogStreaming(ctx, r.Project, r.Environment, management.DestinationType(r.Arguments["type"]))
	return a.Answer, err
}

// says makes a plan of one sentence from arguments.
func says(sentence string, names ...string) func(Request, json.RawMessage) []string {
	return func(r Request, _ json.RawMessage) []string {
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = cmp.Or(r.Arguments[name], none)
		}
		return []string{fmt.Sprintf(sentence, values...)}
	}
}

// none stands for a member that is not there.
const none = "none"

// member is a member of a JSON object, as JSON.
func member(state json.RawMessage, names ...string) string {
	for _, name := range names {
		var object map[string]json.RawMessage
		if json.Unmarshal(state, &object) != nil || object[name] == nil {
			return none
		}
		state = object[name]
	}
	return string(state)
}

// validateTypes refuses a request without a list: the API takes the lists as a whole, and
// would be told to empty both.
func validateTypes(r Request) error {
	_, types := r.Arguments[argTypes]
	_, defaults := r.Arguments[argDefaultTypes]
	if !types && !defaults {
		return errors.New("it needs types, default types, or both; an empty list leaves the URL without valid types")
	}
	return nil
}

// redirectTypes lists each type once. A default type is a valid type as well.
func redirectTypes(r Request) management.RedirectURLUpdate {
	u := management.RedirectURLUpdate{ValidTypes: []management.RedirectType{}, DoNotPromoteDefaults: r.Arguments[argDoNotPromote] == "true"}
	add := func(list string, isDefault bool) {
		for kind := range strings.SplitSeq(list, ",") {
			t := management.RedirectType{IsDefault: isDefault, Type: strings.TrimSpace(kind)}
			same := func(have management.RedirectType) bool { return have.Type == t.Type }
			if t.Type != "" && !slices.ContainsFunc(u.ValidTypes, same) {
				u.ValidTypes = append(u.ValidTypes, t)
			}
		}
	}
	add(r.Arguments[argDefaultTypes], true)
	add(r.Arguments[argTypes], false)
	return u
}

// planTypes shows what redirectTypes sends.
func planTypes(r Request, _ json.RawMessage) []string {
	u := redirectTypes(r)
	var types, defaults []string
	for _, t := range u.ValidTypes {
		types = append(types, t.Type)
		if t.IsDefault {
			defaults = append(defaults, t.Type)
		}
	}
	list := func(kinds []string) string { return cmp.Or(strings.Join(kinds, ", "), none) }
	promoted := "the API may promote another URL to the default of a type"
	if u.DoNotPromoteDefaults {
		promoted = "the API promotes no other URL to the default of a type"
	}
	return []string{
		fmt.Sprintf("the valid types of redirect URL %q become: %s (the API does not show the present ones)", r.Arguments["url"], list(types)),
		fmt.Sprintf("it becomes the default for: %s", list(defaults)),
		fmt.Sprintf("%s: %t: %s", argDoNotPromote, u.DoNotPromoteDefaults, promoted),
	}
}

// validateDestination refuses a destination before any call and any entry.
func validateDestination(r Request) error {
	a := r.Arguments
	switch management.DestinationType(a["type"]) {
	case management.Datadog:
		if a["site"] == "" || a["hostname"] != "" || a["username"] != "" {
			return errors.New("DATADOG takes a site and an API key")
		}
	case management.GrafanaLoki:
		if a["hostname"] == "" || a["username"] == "" || a["site"] != "" {
			return errors.New("GRAFANA_LOKI takes a host name, a user name and a password")
		}
	default:
		return fmt.Errorf("the type %q is neither DATADOG nor GRAFANA_LOKI", a["type"])
	}
	return nil
}

// destination is where the arguments of streaming.set lead.
func destination(a map[string]string) management.Shape {
	return management.Shape{Type: management.DestinationType(a["type"]), Hostname: a["hostname"], Username: a["username"], Site: a["site"]}
}

func planStreaming(r Request, before json.RawMessage) []string {
	if management.DestinationType(r.Arguments["type"]) == management.Datadog {
		return []string{
			fmt.Sprintf("the Datadog site: %s → %q", member(before, "destination_config", "datadog", "site"), r.Arguments["site"]),
			"the API key is replaced",
		}
	}
	loki := func(name string) string { return member(before, "destination_config", "grafana_loki", name) }
	return []string{
		fmt.Sprintf("the Loki host name: %s → %q", loki("hostname"), r.Arguments["hostname"]),
		fmt.Sprintf("the Loki user name: %s → %q", loki("username"), r.Arguments["username"]),
		"the password is replaced",
	}
}
