package routing

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/workspace/meaning"
	"github.com/auditrelay/auditrelay/relay"
)

const ocsfVersion = "1.9.0"

// OCSFStart is how every OCSF object begins.
const OCSFStart = `{"metadata":{"version":"` + ocsfVersion + `","product":{"name":"auditrelay","vendor_name":"auditrelay"},"uid":"`

// encodeOCSF returns e in the form of OCSF 1.9.0, the Open Cybersecurity Schema Framework
// (https://schema.ocsf.io/1.9.0): one JSON object without a line end, whatever the body is. Equal
// events give equal bytes, since a destination may recognise a redelivery by its body.
//
// # Classes
//
//	an entry about a setting, or an environment   Entity Management 3004
//	a change of roles in the RBAC policy          Role Management 3008
//	a change of high severity or more, or weaker
//	or mixed and medium; found damage             Detection Finding 2004
//	an action of a person, or of the relay        API Activity 6003
//	a user logged on or off, or failed to         Authentication 3002
//	everything else                               Base Event 0
//
// One event becomes one object. So such a change is a finding, for a SIEM to put
// before a person, and not a 3004 besides: counts stay right. metadata.event_code has the
// event's type in every class, so settings.changed finds all changes. A first look is a
// Read, since nobody created anything.
//
// A log event is an Authentication only if its body names the outcome and the user. The
// start of an attempt is a Base Event, or each login would count twice.
//
// # Nothing is lost
//
// raw_data is the body as the sink would have got it, byte for byte; a body outside of UTF-8
// is in base64, with unmapped.raw_data_encoding. From the raw_data of an audit entry, its
// leaf in the trail can be computed. The profile record_integrity is not used: it attests
// the OCSF object, and the trail attests the record.
//
// Parsed copies of the states accompany raw_data, as long as the body is at most 256 KiB.
// The object is at most about eight times as long as the body, in practice less than twice.
func encodeOCSF(e *relay.Event) []byte {
	o := newOCSF(e)
	if isLogEvent(e.Type) {
		o.logEvent(e)
	} else {
		o.trailEntry(e)
	}
	text, err := o.encode()
	if err != nil { // this never happens, since a part of the body that is not JSON is not copied
		o = newOCSF(e)
		o.is(baseEvent, activityOther, e.Type)
		text, _ = o.encode()
	}
	return text
}

// isLogEvent tells a pushed event from an entry of the audit trail by its type, which ingest
// begins like this whatever the body says.
func isLogEvent(kind string) bool {
	return kind == "event_log" || strings.HasPrefix(kind, "event_log.")
}

// newOCSF returns an object with the members that all classes have in common.
func newOCSF(e *relay.Event) *ocsfObject {
	o := &ocsfObject{
		Metadata: metadata{
			Version: ocsfVersion, Product: product{Name: "auditrelay", Vendor: "auditrelay"}, UID: e.ID, EventCode: e.Type,
			Source: e.Source, Tenant: e.Project, Tags: tags(e.Labels),
			OriginalTime: e.Time.UTC().Format(time.RFC3339Nano), LoggedTime: e.Time.UnixMilli(),
		},
		Time:       e.Time.UnixMilli(),
		SeverityID: severityInformational, Severity: severityNames[severityInformational],
		Unmapped: unmapped{Project: e.Project, Environment: e.Environment, Subject: e.Subject},
		RawSize:  len(e.Body),
	}
	sum := sha256.Sum256(e.Body)
	o.RawHash = fingerprint{AlgorithmID: 3, Algorithm: "SHA-256", Value: hex.EncodeToString(sum[:])}
	if o.Raw = string(e.Body); !utf8.Valid(e.Body) {
		o.Raw, o.Unmapped.RawEncoding = base64.StdEncoding.EncodeToString(e.Body), "base64"
	}
	return o
}

// tags returns the sender's labels, with all values of a name together.
func tags(labels []relay.Label) []tag {
	var all []tag
	places := map[string]int{}
	for _, l := range labels {
		i, known := places[l.Name]
		if !known {
			i = len(all)
			places[l.Name] = i
			all = append(all, tag{Name: l.Name})
		}
		all[i].Values = append(all[i].Values, l.Value)
	}
	return all
}

func (o *ocsfObject) encode() ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(o.Raw) + 1024)
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// class is an OCSF class.
type class struct {
	uid           int
	name          string
	category      int
	categoryName  string
	activityNames map[activity]string
}

type activity int

// The activities. The first four are those of Entity Management and API Activity; the
// others have the numbers of their class.
const (
	activityCreate activity = 1
	activityRead   activity = 2
	activityUpdate activity = 3
	activityRemove activity = 4
	activityOther  activity = 99

	activityUpdateRole    activity = 2
	activityCreateFinding activity = 1
	activityLogon         activity = 1
	activityLogoff        activity = 2
)

var (
	crud = map[activity]string{activityCreate: "Create", activityRead: "Read", activityUpdate: "Update", activityRemove: "Delete"}

	baseEvent        = class{0, "Base Event", 0, "Uncategorized", nil}
	detectionFinding = class{2004, "Detection Finding", 2, "Findings", map[activity]string{activityCreateFinding: "Create"}}
	authentication   = class{3002, "Authentication", 3, iam, map[activity]string{activityLogon: "Logon", activityLogoff: "Logoff"}}
	entityManagement = class{3004, "Entity Management", 3, iam, crud}
	roleManagement   = class{3008, "Role Management", 3, iam, map[activity]string{activityUpdateRole: "Update"}}
	apiActivity      = class{6003, "API Activity", 6, "Application Activity", crud}
)

const iam = "Identity & Access Management"

// is sets the class and the activity. Only the activity Other needs a name.
func (o *ocsfObject) is(c class, a activity, name string) {
	if known := c.activityNames[a]; known != "" {
		name = known
	}
	o.ClassUID, o.ClassName, o.CategoryUID, o.CategoryName = c.uid, c.name, c.category, c.categoryName
	o.ActivityID, o.ActivityName = a, name
	o.TypeUID, o.TypeName = c.uid*100+int(a), c.name+": "+name
}

type severity int

const (
	severityInformational severity = 1
	severityMedium        severity = 3
	severityHigh          severity = 4
)

var severityNames = map[severity]string{1: "Informational", 2: "Low", 3: "Medium", 4: "High", 5: "Critical"}

var severities = map[string]severity{
	string(meaning.Info): 1, string(meaning.Low): 2, string(meaning.Medium): 3, string(meaning.High): 4, string(meaning.Critical): 5,
}

// weighs sets the severity, if there is such a one.
func (o *ocsfObject) weighs(name string) {
	if s := severities[name]; s != 0 {
		o.SeverityID, o.Severity = s, severityNames[s]
	}
}

type status int

const (
	statusSuccess status = 1
	statusFailure status = 2
	statusOther   status = 99

	statusNew status = 1
)

// ended sets the status. Only the status Other needs a name.
func (o *ocsfObject) ended(s status, name string) {
	switch s {
	case statusSuccess:
		name = "Success"
	case statusFailure:
		name = "Failure"
	}
	o.StatusID, o.Status = s, name
}
