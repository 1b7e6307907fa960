package routing

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/relay"
)

// maxCopied bounds the body of an entry whose states are copied, since with them a large object
// would exceed the megabyte that many destinations take.
const maxCopied = 256 << 10

// trailEntry is the part of an audit event's body that is used.
type trailEntry struct {
	Subject string `json:"subject"`
	Window  *struct {
		After time.Time `json:"after"`
		Until time.Time `json:"until"`
	} `json:"window"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
	Detail json.RawMessage `json:"detail"`
	Trail  struct {
		Index *int64 `json:"index"`
	} `json:"trail"`

	detail detail
	actor  *actor // nil: unknown
	kind   string // the event's type
	uid    string // of the resource
}

// detail is the part of an entry's detail that is used, for every type.
type detail struct {
	Severity   string `json:"severity"`
	Direction  string `json:"direction"`
	Statements []struct {
		Sentence string `json:"sentence"`
		Rule     string `json:"rule"`
	} `json:"statements"`
	Changes json.RawMessage `json:"changes"`

	Cause       string `json:"cause"`
	Actor       string `json:"actor"`
	ActorReason string `json:"actor_reason"`

	// The fields below are those of a person's action.
	Action    string `json:"action"`
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
	Outcome   string `json:"outcome"`
	Status    int    `json:"status"`
	Person    struct {
		User string `json:"user"`
		Host string `json:"host"`
	} `json:"person"`

	Relay string `json:"relay"` // the acting relay's host
	Error string `json:"error"`
}

func readEntry(e *relay.Event) *trailEntry {
	x := &trailEntry{kind: e.Type, uid: strings.TrimSuffix(relay.SourceOf(e.Project, e.Environment)+"/"+e.Subject, "/")}
	_ = json.Unmarshal(e.Body, x) // members that cannot be read, as after a redaction, count as absent
	_ = json.Unmarshal(x.Detail, &x.detail)
	x.Subject = cmp.Or(x.Subject, e.Subject, e.Type)
	x.Before, x.After, x.detail.Changes = present(x.Before), present(x.After), present(x.detail.Changes)
	return x
}

// present returns nil for null.
func present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

// trailEntry fills o with an entry of the audit trail.
func (o *ocsfObject) trailEntry(e *relay.Event) {
	x := readEntry(e)
	d := &x.detail
	o.Metadata.LogName, o.Metadata.Correlation, o.Metadata.Sequence = "audit_trail", d.Action, x.Trail.Index
	sentence, weight := meaning.OfEntry(x.kind, x.Subject, x.Detail)
	o.Message = sentence
	o.weighs(string(weight))
	o.weighs(d.Severity)
	if x.Window != nil {
		o.StartTime, o.EndTime = x.Window.After.UnixMilli(), x.Window.Until.UnixMilli()
	}
	u := &o.Unmapped
	u.Cause, u.Direction, u.ActorReason, u.Reason = d.Cause, d.Direction, d.ActorReason, d.Reason
	if u.StatesOmitted = len(e.Body) > maxCopied; u.StatesOmitted {
		x.Before, x.After, d.Changes = nil, nil, nil
	}
	u.Changes = d.Changes
	if d.Actor != "" && d.Actor != "unknown" {
		x.actor = &actor{User: &named{Name: d.Actor}}
	}
	o.classify(x)
}

func (o *ocsfObject) classify(x *trailEntry) {
	room, what, _ := strings.Cut(x.kind, ".")
	weaker := x.detail.Direction == string(meaning.Weaker) || x.detail.Direction == string(meaning.Mixed)
	// A lockout makes a setting stronger, and of a suspicious link nobody knows where it leads.
	grave := o.SeverityID >= severityHigh && strings.HasSuffix(what, "changed")
	switch {
	case weaker && o.SeverityID >= severityMedium, grave, room == "health" && o.SeverityID >= severityMedium, what == "damaged", what == "quarantined":
		o.finding(x)
	case x.detail.Person.User != "", room == "action", room == "streaming" && strings.HasPrefix(what, "put_"):
		o.apiActivity(x, what)
	case x.kind == "settings.changed" && x.Subject == "rbac_policy" && o.roles(x):
	case slices.Contains([]string{"settings", "streaming", "environment", "workspace"}, room):
		o.entityManagement(x, room, what)
	default:
		o.is(baseEvent, activityOther, x.kind)
	}
}

// finding makes o a Detection Finding: something for a person to look at.
func (o *ocsfObject) finding(x *trailEntry) {
	o.is(detectionFinding, activityCreateFinding, "")
	o.StatusID, o.Status, o.IsAlert = statusNew, "New", true
	o.Finding = &findingInfo{UID: o.Metadata.UID, Title: o.Message, Types: []string{x.kind}, Created: o.Time}
	var sentences []string
	for _, s := range x.detail.Statements {
		sentences = append(sentences, s.Sentence)
	}
	o.Finding.Desc = strings.Join(sentences, "\n")
	if len(x.detail.Statements) > 0 {
		const rule = 1
		o.Finding.Rule = &analytic{TypeID: rule, Type: "Rule", Name: cmp.Or(x.detail.Statements[0].Rule, "unknown")}
	}
	data := map[string]any{}
	for name, state := range map[string]json.RawMessage{"before": x.Before, "after": x.After} {
		if state != nil {
			data[name] = state
		}
	}
	if len(data) == 0 && present(x.Detail) != nil && !o.Unmapped.StatesOmitted {
		data["detail"] = x.Detail // of found damage
	}
	o.Evidences = []evidence{{Actor: x.actor, Data: data}}
	o.Resources = []resource{{Name: x.Subject, UID: x.uid, Type: "Setting"}}
}

// verbs are the activities of a person's action, by the last word of the operation or of
// the entry's type, or by the whole type.
var verbs = map[string]activity{
	"create": activityCreate, "annotated": activityCreate, "added": activityCreate,
	"rename": activityUpdate, "set": activityUpdate, "set_types": activityUpdate, "damage_accepted": activityUpdate, "replayed": activityUpdate, "work_stopped": activityUpdate,
	"put_intended": activityUpdate, "put_ended": activityUpdate, "put_failed": activityUpdate,
	"delete": activityRemove, "unset": activityRemove, "discarded": activityRemove, "retired": activityRemove, "revoked": activityRemove, "silence.ended": activityRemove,
}

// apiActivity makes o an API Activity: a person acted through the relay, or the relay itself.
func (o *ocsfObject) apiActivity(x *trailEntry, what string) {
	d := &x.detail
	operation := cmp.Or(d.Operation, x.kind)
	verb := operation[strings.LastIndexByte(operation, '.')+1:]
	if a := cmp.Or(verbs[verb], verbs[x.kind]); a != 0 {
		o.is(apiActivity, a, "")
	} else {
		o.is(apiActivity, activityOther, cmp.Or(verb, what, x.kind))
	}
	o.API = &api{Operation: operation, Service: &named{Name: "auditrelay"}}
	if d.Action != "" {
		o.API.Request = &named{UID: d.Action}
	}
	if d.Status != 0 {
		o.API.Response = &response{Code: d.Status}
	}
	o.Actor, o.SrcEndpoint = &actor{InvokedBy: "auditrelay"}, &endpoint{Service: "auditrelay"}
	if d.Person.User != "" {
		o.Actor = &actor{User: &named{Name: d.Person.User}}
	}
	if host := cmp.Or(d.Person.Host, d.Relay); host != "" {
		o.SrcEndpoint = &endpoint{Hostname: host}
	}
	o.Resources = []resource{{Name: x.Subject, UID: x.uid, Type: "Setting"}}
	o.StatusDetail = d.Error
	switch {
	case strings.HasSuffix(what, "intended"): // not ended yet
	case d.Outcome == "refused", what == "put_failed":
		o.ended(statusFailure, "")
	case d.Outcome == "done", d.Outcome == "" && d.Operation == "" && d.Person.User != "": // an entry follows the act
		o.ended(statusSuccess, "")
	case d.Outcome != "":
		o.ended(statusOther, d.Outcome)
	}
}

// lookedAt says how the entries about settings and environments are written, by the last word of
// the type.
var lookedAt = map[string]struct {
	activity activity
	status   status
}{
	"baseline": {activityRead, statusSuccess}, "checked": {activityRead, statusSuccess}, "recovered": {activityRead, statusSuccess}, "reachable": {activityRead, statusSuccess},
	"restated": {activityRead, statusSuccess}, "failed": {activityRead, statusFailure}, "unreachable": {activityRead, statusFailure},
	"changed": {activityUpdate, statusSuccess}, "status_changed": {activityUpdate, statusSuccess},
	"gone": {activityRemove, statusSuccess},
}

// entityManagement makes o an Entity Management: a setting was changed, or looked at.
func (o *ocsfObject) entityManagement(x *trailEntry, room, what string) {
	how := lookedAt[what]
	switch {
	case how.activity == activityUpdate && x.Before == nil && x.After != nil:
		how.activity = activityCreate // it was gone
	case how.activity == 0:
		how.activity = activityOther
	}
	o.is(entityManagement, how.activity, what)
	o.Actor = x.actor
	if how.status != 0 {
		o.ended(how.status, "")
	}
	o.StatusDetail = x.detail.Error
	const otherType = 99
	about := entity{Name: x.Subject, UID: x.uid, TypeID: otherType, Type: entityTypes[room], Data: x.Before}
	switch how.activity {
	case activityUpdate:
		after := about
		after.Data = x.After
		o.UpdatedEntity = &after
	case activityRemove:
	default:
		about.Data = x.After
	}
	o.Entity = &about
}

var entityTypes = map[string]string{"settings": "Setting", "streaming": "Setting", "environment": "Environment", "workspace": "Workspace"}

// maxRoles bounds the roles in an object's name; unmapped.roles has up to maxListed.
const (
	maxRoles  = 8
	maxListed = 100
)

// roles makes o a Role Management, if a change of the RBAC policy is about roles. The class has
// room for one role, so several share its name, and unmapped.roles has each.
func (o *ocsfObject) roles(x *trailEntry) bool {
	names := rolesIn(x.detail.Changes)
	if len(names) == 0 {
		return false
	}
	o.is(roleManagement, activityUpdateRole, "")
	o.ended(statusSuccess, "")
	o.Actor = x.actor
	o.Unmapped.Roles = names
	name := strings.Join(names[:min(len(names), maxRoles)], ", ")
	of := func(state json.RawMessage) *role {
		return &role{Name: name, Policies: []policy{{Name: x.Subject, UID: x.uid, Data: state}}}
	}
	o.Role, o.UpdatedRole = of(x.Before), of(x.After)
	return true
}

// rolesIn returns the roles in the paths of changes: /custom_roles/role_id=ID/…, and the
// default roles, which are recognised by the ends of their members' names.
func rolesIn(raw json.RawMessage) []string {
	var changes []struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal(raw, &changes)
	var names []string
	for _, c := range changes {
		if name := roleOf(c.Path); name != "" && !slices.Contains(names, name) && len(names) < maxListed {
			names = append(names, name)
		}
	}
	return names
}

func roleOf(path string) string {
	member, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if member == "custom_roles" {
		id, _, _ := strings.Cut(rest, "/")
		id, _ = strings.CutPrefix(id, "role_id=")
		return strings.NewReplacer("~1", "/", "~0", "~").Replace(id)
	}
	for _, name := range []string{"member", "admin", "user"} {
		if strings.HasSuffix(member, "_"+name) {
			return name
		}
	}
	return ""
}
