package commontypes

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/instancetype"

	"drydock.dev/drydock/internal/contracts/layout"
)

// prefix is that of labels that describe a type or preference, so that users can select by them.
const prefix = instancetype.GroupName + "/"

// VendorLabel names the vendor of a type or preference, and Vendor is Drydock's value.
const (
	VendorLabel = prefix + "vendor"
	Vendor      = "drydock.dev"
)

// Graphical clients show it.
const displayAnnotation = prefix + "displayName"

// ContentAnnotation has the digest of the object as Drydock wrote it, so that changes by others are seen.
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

func ours(key string) bool { return strings.HasPrefix(key, prefix) || key == ContentAnnotation }

func seal(object metav1.Object, spec any) {
	object.GetLabels()[VendorLabel] = Vendor
	object.GetAnnotations()[ContentAnnotation] = digest(object, spec)
}

// digest covers the name and everything that Drydock writes, encoded by the API's types: an API server may change a
// quantity's notation. spec is a pointer.
func digest(object metav1.Object, spec any) string {
	text, err := json.Marshal([]any{object.GetName(), written(object.GetLabels()), written(object.GetAnnotations()), spec})
	if err != nil {
		panic(fmt.Sprintf("encoding the spec of %s: %v", object.GetName(), err))
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
