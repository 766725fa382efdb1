package commontypes

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/instancetype"

	"drydock.dev/drydock/internal/contracts/layout"
)

// prefix is that of the labels which tell what a type or preference is, so that users can choose by them.
const prefix = instancetype.GroupName + "/"

// VendorLabel says whose a type or preference is, and Vendor is what Drydock's have.
const (
	VendorLabel = prefix + "vendor"
	Vendor      = "drydock.dev"
)

// displayAnnotation has the name that graphical clients show.
const displayAnnotation = prefix + "displayName"

// ContentAnnotation has the digest of what Drydock wrote into the object. An object with other content was changed by
// somebody else since.
const ContentAnnotation = "drydock.dev/content"

func addLabel(labels map[string]string, name, value string) {
	if value != "" {
		labels[prefix+name] = value
	}
}

func addSwitch(labels map[string]string, name string, on bool) {
	if on {
		labels[prefix+name] = "true"
	}
}

// ours reports whether a label or annotation is one that Drydock writes.
func ours(key string) bool { return strings.HasPrefix(key, prefix) || key == ContentAnnotation }

// seal marks an object that is complete as Drydock's.
func seal(object metav1.Object, spec any) {
	object.GetLabels()[VendorLabel] = Vendor
	object.GetAnnotations()[ContentAnnotation] = digest(object, spec)
}

// digest is of the name and of all that Drydock writes, in the one form in which the API's types encode it: an API server may give back
// a quantity in other words. spec points to the spec.
func digest(object metav1.Object, spec any) string {
	text, err := json.Marshal([]any{object.GetName(), written(object.GetLabels()), written(object.GetAnnotations()), spec})
	if err != nil {
		panic(fmt.Sprintf("encoding the spec of %s: %v", object.GetName(), err)) // the API's own types
	}
	return layout.HexDigest(string(text), 16)
}

func written(pairs map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range pairs {
		if ours(key) && key != ContentAnnotation {
			out[key] = value
		}
	}
	return out
}
