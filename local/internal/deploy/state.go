package deploy

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/polymorphichelpers"
)

var conditions = map[string]string{
	"CustomResourceDefinition": "Established",
	"APIService":               "Available",
	"KubeVirt":                 "Available",
	"VirtualMachine":           "Ready",
}

// hasState reports whether objects of this kind need time to work after they are applied.
func hasState(object *unstructured.Unstructured) bool {
	_, err := polymorphichelpers.StatusViewerFor(object.GroupVersionKind().GroupKind())
	return err == nil || conditions[object.GetKind()] != ""
}

// State reports whether an object works, and if not, why.
func State(object *unstructured.Unstructured) (works bool, why string, err error) {
	viewer, err := polymorphichelpers.StatusViewerFor(object.GroupVersionKind().GroupKind())
	if err != nil {
		works, why = conditionHolds(object, conditions[object.GetKind()])
		return works, why, nil
	}
	why, works, err = viewer.Status(object, 0)
	return works, strings.TrimSpace(why), err
}

// conditionHolds reports whether a condition is True, and if not, the messages of all conditions.
func conditionHolds(object *unstructured.Unstructured, kind string) (holds bool, why string) {
	list, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return false, fmt.Errorf("its conditions can't be read: %w", err).Error()
	}
	var said []error
	for _, item := range list {
		condition, _ := item.(map[string]any)
		if condition["type"] == kind && condition["status"] == "True" {
			return true, ""
		}
		if message, _ := condition["message"].(string); message != "" {
			said = append(said, fmt.Errorf("%v is %v: %s", condition["type"], condition["status"], message))
		}
	}
	if len(said) == 0 {
		return false, "condition " + kind + " is not True"
	}
	return false, strings.ReplaceAll(errors.Join(said...).Error(), "\n", "; ")
}
