package commontypes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"kubevirt.io/api/instancetype"
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

// seal marks an object that is complete as Drydock's.
func seal(object metav1.Object, spec any) {
	object.GetLabels()[VendorLabel] = Vendor
	object.GetAnnotations()[ContentAnnotation] = digest(object, spec)
}

// digest is of all that Drydock writes, in the one form in which the API's types encode it: an API server may give back
// a quantity in other words.
func digest(object metav1.Object, spec any) string {
	annotations := maps.Clone(object.GetAnnotations())
	delete(annotations, ContentAnnotation)
	text, err := json.Marshal([]any{object.GetLabels(), annotations, spec})
	if err != nil {
		panic(fmt.Sprintf("encoding the spec of %s: %v", object.GetName(), err)) // the API's own types
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
