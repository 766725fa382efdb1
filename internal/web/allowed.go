package web

import (
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeapi"
)

// verb is a verb of the Kubernetes API.
type verb string

const (
	get    verb = "get"
	list   verb = "list"
	watch  verb = "watch"
	create verb = "create"
	update verb = "update"
	remove verb = "delete"
)

var (
	reading  = []verb{get, list, watch}
	creating = []verb{create}
)

// and returns the verbs of reading and more.
func and(more ...verb) []verb { return slices.Concat(reading, more) }

// kind is a kind of objects that the pages use. Its name is the plural in paths.
type kind struct {
	groupVersion, name string
	namespaced         bool
	verbs              []verb
}

var (
	kubevirt      = v1.GroupVersion.String()
	snapshots     = snapshotv1.SchemeGroupVersion.String()
	instancetypes = instancetypev1.SchemeGroupVersion.String()
	volumes       = cdiv1.SchemeGroupVersion.String()
	clones        = clonev1.SchemeGroupVersion.String()
	authorization = authorizationv1.SchemeGroupVersion.String()
	subresources  = v1.SubresourceGroupName + "/" + v1.ApiLatestVersion
)

const (
	core        = "v1"
	machines    = "virtualmachines"
	instances   = "virtualmachineinstances"
	maintenance = layout.MaintenanceVerb
)

// kinds are all objects that pass, with the verbs that a page about them needs. No kind of them changes rights or has
// secret content, as a pod may have in its environment.
var kinds = []kind{
	{kubevirt, machines, true, and(create, update, remove)},
	{kubevirt, instances, true, and(update, remove)},
	{kubevirt, "virtualmachineinstancemigrations", true, and(create, remove)},
	{snapshots, "virtualmachinesnapshots", true, and(create, remove)},
	{snapshots, "virtualmachinerestores", true, and(create)},
	{clones, "virtualmachineclones", true, and(create, remove)},
	{volumes, "datavolumes", true, and(create, remove)},
	{volumes, "datasources", true, reading},
	{instancetypes, "virtualmachineinstancetypes", true, reading},
	{instancetypes, "virtualmachinepreferences", true, reading},
	{instancetypes, "virtualmachineclusterinstancetypes", false, reading},
	{instancetypes, "virtualmachineclusterpreferences", false, reading},
	{core, "persistentvolumeclaims", true, reading},
	{core, "events", true, reading},
	{core, "nodes", false, reading},
	{core, "namespaces", false, reading},
	{storagev1.SchemeGroupVersion.String(), "storageclasses", false, reading},
	{authorization, "selfsubjectaccessreviews", false, creating},
	{authorization, "selfsubjectrulesreviews", false, creating},
}

// Query keys of each verb.
var (
	listKeys   = []string{"limit", "continue", "labelSelector", "fieldSelector", "resourceVersion"}
	changeKeys = []string{"dryRun", "fieldValidation"}
	verbsKeys  = map[verb][]string{
		get:    nil,
		list:   listKeys,
		watch:  append([]string{"watch", "allowWatchBookmarks"}, listKeys...),
		create: changeKeys,
		update: changeKeys,
		remove: nil,
	}
)

// action is a subresource of subresources.kubevirt.io. keys may be in its query.
type action struct {
	method, resource, name string
	keys                   []string
	answer                 answerKind
}

// answerKind is the form of an answer.
type answerKind string

const (
	jsonAnswer answerKind = "application/json"
	pngAnswer  answerKind = "image/png"
	// streamAnswer is a WebSocket of bytes, watchAnswer one of events.
	streamAnswer answerKind = nodeapi.StreamProtocol
	watchAnswer  answerKind = "watch.drydock.dev"
)

func (a answerKind) isStream() bool { return a == streamAnswer || a == watchAnswer }

var actions = []action{
	{http.MethodPut, machines, "start", nil, jsonAnswer},
	{http.MethodPut, machines, "stop", nil, jsonAnswer},
	{http.MethodPut, machines, "restart", nil, jsonAnswer},
	{http.MethodPut, machines, "migrate", nil, jsonAnswer},
	{http.MethodPut, machines, "addvolume", nil, jsonAnswer},
	{http.MethodPut, machines, "removevolume", nil, jsonAnswer},
	{http.MethodGet, machines, maintenance, nil, jsonAnswer},
	{http.MethodPost, machines, maintenance, nil, jsonAnswer},
	{http.MethodDelete, machines, maintenance, nil, jsonAnswer},
	{http.MethodPut, instances, "pause", nil, jsonAnswer},
	{http.MethodPut, instances, "unpause", nil, jsonAnswer},
	{http.MethodPut, instances, "addvolume", nil, jsonAnswer},
	{http.MethodPut, instances, "removevolume", nil, jsonAnswer},
	{http.MethodGet, instances, "vnc/screenshot", nil, pngAnswer},
	{http.MethodGet, instances, "console", nil, streamAnswer},
	{http.MethodGet, instances, "vnc", nil, streamAnswer},
}
