package routing

import "github.com/auditrelay/auditrelay/internal/workspace/meaning"

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
