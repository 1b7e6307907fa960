package routing

import "encoding/json"

// ocsfObject holds the attributes that are used, of all classes. Numbers without omitempty are
// required by the schema, and zero has a meaning there.
type ocsfObject struct {
	Metadata     metadata `json:"metadata"`
	ClassUID     int      `json:"class_uid"`
	ClassName    string   `json:"class_name"`
	CategoryUID  int      `json:"category_uid"`
	CategoryName string   `json:"category_name"`
	ActivityID   activity `json:"activity_id"`
	ActivityName string   `json:"activity_name"`
	TypeUID      int      `json:"type_uid"`
	TypeName     string   `json:"type_name"`

	Time       int64    `json:"time"` // in ms since 1970, as all times
	StartTime  int64    `json:"start_time,omitempty"`
	EndTime    int64    `json:"end_time,omitempty"`
	SeverityID severity `json:"severity_id"`
	Severity   string   `json:"severity"`

	Message      string `json:"message,omitempty"`
	StatusID     status `json:"status_id,omitempty"`
	Status       string `json:"status,omitempty"`
	StatusCode   string `json:"status_code,omitempty"`
	StatusDetail string `json:"status_detail,omitempty"`
	IsAlert      bool   `json:"is_alert,omitempty"`

	Actor         *actor       `json:"actor,omitempty"`
	User          *named       `json:"user,omitempty"`
	Service       *named       `json:"service,omitempty"`
	SrcEndpoint   *endpoint    `json:"src_endpoint,omitempty"`
	HTTPRequest   *httpRequest `json:"http_request,omitempty"`
	API           *api         `json:"api,omitempty"`
	Entity        *entity      `json:"entity,omitempty"`
	UpdatedEntity *entity      `json:"updated_entity,omitempty"`
	Role          *role        `json:"iam_role,omitempty"`
	UpdatedRole   *role        `json:"updated_role,omitempty"`
	Finding       *findingInfo `json:"finding_info,omitempty"`
	Evidences     []evidence   `json:"evidences,omitempty"`
	Resources     []resource   `json:"resources,omitempty"`

	Unmapped unmapped    `json:"unmapped"`
	RawSize  int         `json:"raw_data_size"`
	RawHash  fingerprint `json:"raw_data_hash"`
	Raw      string      `json:"raw_data"`
}

// metadata is OCSF's object of this name; [OCSFStart] depends on its first members.
type metadata struct {
	Version      string  `json:"version"`
	Product      product `json:"product"`
	UID          string  `json:"uid"`        // the CloudEvents id
	EventCode    string  `json:"event_code"` // the CloudEvents type
	Source       string  `json:"source,omitempty"`
	Tenant       string  `json:"tenant_uid,omitempty"` // the project
	LogName      string  `json:"log_name,omitempty"`
	Correlation  string  `json:"correlation_uid,omitempty"` // the request, or the action
	Sequence     *int64  `json:"sequence,omitempty"`        // the entry's place in the trail
	OriginalTime string  `json:"original_time"`             // RFC 3339, to the nanosecond
	LoggedTime   int64   `json:"logged_time"`               // of the trail's entry, or the push
	Tags         []tag   `json:"tags,omitempty"`
}

type product struct {
	Name   string `json:"name"`
	Vendor string `json:"vendor_name"`
}

type tag struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

type fingerprint struct {
	AlgorithmID int    `json:"algorithm_id"`
	Algorithm   string `json:"algorithm"`
	Value       string `json:"value"`
}

// named is an object of OCSF with a name or a uid, such as user and service.
type named struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

type actor struct {
	User      *named `json:"user,omitempty"`
	InvokedBy string `json:"invoked_by,omitempty"`
}

type endpoint struct {
	IP       string `json:"ip,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	Service  string `json:"svc_name,omitempty"`
}

type httpRequest struct {
	UserAgent string `json:"user_agent"`
}

type api struct {
	Operation string    `json:"operation"`
	Service   *named    `json:"service,omitempty"`
	Request   *named    `json:"request,omitempty"`
	Response  *response `json:"response,omitempty"`
}

type response struct {
	Code int `json:"code,omitempty"`
}

// entity is OCSF's managed_entity.
type entity struct {
	Name   string          `json:"name"`
	UID    string          `json:"uid"`
	TypeID int             `json:"type_id"`
	Type   string          `json:"type"`
	Data   json.RawMessage `json:"data,omitempty"`
}

type role struct {
	Name     string   `json:"name"`
	Policies []policy `json:"policies,omitempty"`
}

type policy struct {
	Name string          `json:"name"`
	UID  string          `json:"uid"`
	Data json.RawMessage `json:"data,omitempty"`
}

type findingInfo struct {
	UID     string    `json:"uid"`
	Title   string    `json:"title"`
	Desc    string    `json:"desc,omitempty"`
	Types   []string  `json:"types,omitempty"`
	Created int64     `json:"created_time"`
	Rule    *analytic `json:"analytic,omitempty"`
}

type analytic struct {
	TypeID int    `json:"type_id"`
	Type   string `json:"type"`
	Name   string `json:"name"`
}

type evidence struct {
	Actor *actor         `json:"actor,omitempty"`
	Data  map[string]any `json:"data"`
}

type resource struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	Type string `json:"type"`
}

// unmapped has the members without an attribute in OCSF.
type unmapped struct {
	Project     string `json:"project,omitempty"`
	Environment string `json:"environment,omitempty"`
	Subject     string `json:"subject,omitempty"`

	// The fields below are those of an entry of the trail.
	Cause       string          `json:"cause,omitempty"`
	Direction   string          `json:"direction,omitempty"`
	ActorReason string          `json:"actor_reason,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Roles       []string        `json:"roles,omitempty"`
	Changes     json.RawMessage `json:"changes,omitempty"`
	// StatesOmitted is set if the states and changes are only in raw_data.
	StatesOmitted bool `json:"states_omitted,omitempty"`

	// Event has the short, plain members of a log event's body.
	Event map[string]json.RawMessage `json:"event,omitempty"`
	// RawEncoding is base64 if raw_data is the body in base64.
	RawEncoding string `json:"raw_data_encoding,omitempty"`
}
