package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/workspace/kinds"
)

// ErrUnproven marks an unbelieved 404: the resource may well exist.
var ErrUnproven = errors.New("this 404 proves nothing")

// ErrBack marks an unbelieved 404 that names what a read after it has found. Another read may
// well succeed.
var ErrBack = errors.New("what it names can be read all the same")

// Absence is the error of a believed 404, see [Client.Confirm]. errors.As finds it.
type Absence struct {
	// WholeEnvironment: the environment is gone, and not only the resource.
	WholeEnvironment bool
	// Type and RequestID are the 404's error_type and request_id; Type is empty for a
	// 2xx without the resource.
	Type, RequestID string
	// ParentRequestID is the request_id of the parent's successful read.
	ParentRequestID string
}

func (a *Absence) Error() string {
	what := "the resource does not exist"
	if a.WholeEnvironment {
		what = "the environment does not exist"
	}
	return fmt.Sprintf("%s: request %s answered %s, and request %s read its parent", what, a.RequestID, a.Type, a.ParentRequestID)
}

// GoneBy is the [Absence] of a whole environment that err is, or wraps; nil without one.
func GoneBy(err error) *Absence {
	var a *Absence
	if errors.As(err, &a) && a.WholeEnvironment {
		return a
	}
	return nil
}

// scope is the kind of thing missing by a 404.
type scope int

const (
	aResource scope = iota
	anEnvironment
	aProject
)

// claim is an answer in the API's own form: there is no such thing.
type claim struct {
	scope           scope
	kind, requestID string
}

// Confirm judges err, the failure of a read in an environment, or of a project where
// environment is empty. It returns an [Absence] for a believed 404, an [ErrUnproven] for
// another 404, and any other error as it is.
//
// A 404 is believed under two conditions. It has the API's form: a request_id, and an
// error_type for something not found. And a read of the parent succeeds after it. So a
// proxy's error page, a wrong base_url and a project withdrawn from the key are failures
// to read, never removals.
//
// A resource's parent is its environment, read by operation 9, or 10 where 9 has a 404
// too. An environment's parent is the project (operation 1). A project has no readable
// parent, so its 404 is never believed.
func (c *Client) Confirm(ctx context.Context, project, environment string, err error) error {
	said, reason := claimOf(err)
	switch {
	case reason == "" && said == nil:
		return err
	case said == nil:
		return unproven(err, reason)
	case environment == "" && said.scope != aResource:
		return unproven(err, "no operation reads the parent of a project")
	case environment == "":
		a, unbelieved := c.ConfirmAll(ctx, project, []error{err})
		if unbelieved != nil {
			return unbelieved
		}
		return ConfirmBy(a.Receipt, err)
	}
	parent, probeErr := c.probe(ctx, project, environment)
	probed, _ := claimOf404(probeErr)
	switch {
	case probeErr == nil:
		return ConfirmBy(parent, err)
	case probed == nil || probed.scope == aProject || said.scope == aProject:
		return unread(err, "its environment", probeErr)
	}
	a, parentErr := c.Project(ctx, project)
	if parentErr != nil {
		return unread(err, "its project", parentErr)
	}
	return &Absence{WholeEnvironment: true, Type: said.kind, RequestID: said.requestID, ParentRequestID: a.RequestID}
}

// ConfirmAll is [Client.Confirm] for failed reads of several resources of a project, by
// one read of the project. It returns the read, and the first unbelieved error, judged; nil
// where it believes all.
func (c *Client) ConfirmAll(ctx context.Context, project string, errs []error) (Answer, error) {
	a, parentErr := c.Project(ctx, project)
	for _, err := range errs {
		if parentErr != nil {
			return a, unread(err, "its project", parentErr)
		}
		var absence *Absence
		if err = ConfirmBy(a.Receipt, err); !errors.As(err, &absence) {
			return a, err
		}
	}
	return a, nil
}

// NamesResource reports whether err is a 404 whose error_type names the resource itself,
// and neither its environment, nor its project, nor nothing in particular. If the
// resource is known not to exist, such a 404 is nothing new, and needs no proof.
func NamesResource(err error) bool {
	said, _ := claimOf(err)
	return said != nil && said.scope == aResource && !slices.Contains([]string{"", "not_found", "resource_not_found"}, strings.ToLower(said.kind))
}

// SaysAbsent reports whether err is a 404 in the API's own form, as no proxy and no other
// server gives it.
func SaysAbsent(err error) bool {
	said, _ := claimOf(err)
	return said != nil
}

// ConfirmBy is [Client.Confirm] without a request: parent is the receipt of a successful
// read of the parent, or of something in it, after the 404.
func ConfirmBy(parent Receipt, err error) error {
	said, reason := claimOf(err)
	switch {
	case said == nil && reason == "":
		return err
	case said == nil:
		return unproven(err, reason)
	case said.scope != aResource:
		return fmt.Errorf("%w: %w: %w", err, ErrUnproven, ErrBack)
	}
	return &Absence{Type: said.kind, RequestID: said.requestID, ParentRequestID: parent.RequestID}
}

// probe reads the smallest settings of an environment. Of two 404s it returns the
// second.
func (c *Client) probe(ctx context.Context, project, environment string) (Receipt, error) {
	a, err := c.Setting(ctx, kinds.PasswordStrength, project, environment, "")
	if said, _ := claimOf404(err); said == nil {
		return a.Receipt, err
	}
	codes, err := c.Setting(ctx, kinds.SMSCountryCodes, project, environment, "")
	return codes.Receipt, err
}

func unproven(err error, reason string) error {
	return fmt.Errorf("%w: %w: %s", err, ErrUnproven, reason)
}

// unread is an unproven 404 whose parent cannot be read. If the API cannot be used, the
// error says [ErrUnreachable] too.
func unread(err error, parent string, cause error) error {
	return fmt.Errorf("%w: %w: %s cannot be read: %w", err, ErrUnproven, parent, cause)
}

// claimOf reads the claim out of an error. A 404 without one has a reason instead;
// other errors have neither.
func claimOf(err error) (*claim, string) {
	var empty *noResource
	if errors.As(err, &empty) && empty.RequestID != "" {
		return &claim{requestID: empty.RequestID}, ""
	}
	return claimOf404(err)
}

// claimOf404 is claimOf for 404s alone: a success answer without a resource says nothing of its
// environment.
func claimOf404(err error) (*claim, string) {
	var e *APIError
	if !errors.As(err, &e) || e.Status != http.StatusNotFound {
		return nil, ""
	}
	where, known := scopeOf(e.Type)
	if !known || e.RequestID == "" {
		return nil, fmt.Sprintf("it is not the API's (error_type %q, request_id %q); check workspace.base_url, and any proxy before it", e.Type, e.RequestID)
	}
	return &claim{scope: where, kind: e.Type, requestID: e.RequestID}, ""
}

// scopeOf returns the missing thing's kind by an error_type. The document shows no
// error_type of a 404, so every type ending in "not_found" is taken for a resource's,
// except those of an environment, of a project, and of the address itself.
func scopeOf(kind string) (scope, bool) {
	name, ok := strings.CutSuffix(strings.ToLower(kind), "not_found")
	if !ok {
		return 0, false
	}
	switch name = strings.TrimSuffix(name, "_"); name {
	case "environment":
		return anEnvironment, true
	case "project":
		return aProject, true
	}
	address := []string{"route", "path", "endpoint", "url", "page", "operation", "method", "api", "host", "service", "workspace"}
	return aResource, !slices.Contains(address, name)
}
