package findings

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"drydock.dev/drydock/internal/virtctl/obstacle"
)

// Object is a collected object. Kind is its resource and group, as in virtualmachines.kubevirt.io.
type Object struct {
	Kind string
	*unstructured.Unstructured
}

// words are the names of kinds for people.
var words = map[string]string{
	"apiservices.apiregistration.k8s.io":           "APIService",
	"authorities.diagnose.drydock.dev":             "the authorities in ConfigMap",
	"daemonsets.apps":                              "DaemonSet",
	"datavolumes.cdi.kubevirt.io":                  "DataVolume",
	"deployments.apps":                             "Deployment",
	"kubevirts.kubevirt.io":                        "KubeVirt",
	"leases.coordination.k8s.io":                   "lease",
	"nodes":                                        "node",
	"persistentvolumeclaims":                       "claim",
	"pods":                                         "pod",
	"virtualmachineclones.clone.kubevirt.io":       "clone",
	"virtualmachineinstancemigrations.kubevirt.io": "migration",
	"virtualmachineinstances.kubevirt.io":          "VMI",
	"virtualmachinerestores.snapshot.kubevirt.io":  "restore",
	"virtualmachines.kubevirt.io":                  "VM",
	"virtualmachinesnapshots.snapshot.kubevirt.io": "snapshot",
}

func (o *Object) about() string {
	name := o.GetName()
	if namespace := o.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return cmp.Or(words[o.Kind], o.Kind) + " " + name
}

// Text returns a field as a text, "" if it is none.
func (o *Object) Text(path ...string) string { return TextOf(o.Object, path...) }

// number returns a field as a number, otherwise if it is none.
func (o *Object) number(otherwise int64, path ...string) int64 {
	value, found, err := unstructured.NestedInt64(o.Object, path...)
	if err != nil || !found {
		return otherwise
	}
	return value
}

// List returns the objects of a list. They are the Object's own.
func (o *Object) List(path ...string) []map[string]any {
	field, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	list, _ := field.([]any)
	var objects []map[string]any
	for _, element := range list {
		if object, is := element.(map[string]any); is {
			objects = append(objects, object)
		}
	}
	return objects
}

// at returns a field as a time, the zero time if it is none.
func (o *Object) at(path ...string) time.Time { return parseTime(o.Text(path...)) }

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

func (o *Object) conditions() []obstacle.Condition {
	var list []obstacle.Condition
	for _, c := range o.List("status", "conditions") {
		list = append(list, obstacle.Condition{
			Type: TextOf(c, "type"), Status: TextOf(c, "status"), Reason: TextOf(c, "reason"), Message: TextOf(c, "message"),
			Since: parseTime(TextOf(c, "lastTransitionTime")),
		})
	}
	return list
}

// condition returns the condition of a type if it has the status, or else nil.
func (o *Object) condition(kind, status string) *obstacle.Condition {
	for _, c := range o.conditions() {
		if c.Type == kind && c.Status == status {
			return &c
		}
	}
	return nil
}

// TextOf is Text for an object of a list.
func TextOf(object map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(object, path...)
	return text
}
