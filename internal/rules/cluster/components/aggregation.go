package components

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

const (
	// rolePrefix begins the names of ClusterRoles; the rest is that of the extended ClusterRole of Kubernetes.
	rolePrefix   = "kubevirt.io:"
	aggregatesTo = "rbac.authorization.k8s.io/aggregate-to-"
)

// AggregatedRole reports whether a ClusterRole extends one of Kubernetes.
func AggregatedRole(name string) bool {
	switch name {
	case rolePrefix + "admin", rolePrefix + "edit", rolePrefix + "view":
		return true
	}
	return false
}

// RoleLabels returns the label of users' ClusterRoles.
func RoleLabels() map[string]string { return map[string]string{v1.AppLabel: ""} }

// metadata is the changes of labels and annotations; null removes one.
type metadata struct {
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

type metadataPatch struct {
	Metadata metadata `json:"metadata"`
}

// Aggregation returns the merge patch that makes an aggregated role follow the KubeVirt object, nil for no change; kv
// may be nil. The strategy Manual moves the aggregation label into ReplacedAnnotation. A label that somebody else has
// removed is not restored.
func Aggregation(role metav1.Object, kv *v1.KubeVirt) ([]byte, error) {
	label := aggregatesTo + strings.TrimPrefix(role.GetName(), rolePrefix)
	yes, text := "true", role.GetAnnotations()[ReplacedAnnotation]
	aggregated := role.GetLabels()[label] == yes
	change := metadata{ResourceVersion: role.GetResourceVersion(), Labels: map[string]*string{}, Annotations: map[string]*string{}}
	manual := kv != nil && kv.Spec.Configuration.RoleAggregationStrategy != nil &&
		*kv.Spec.Configuration.RoleAggregationStrategy == v1.RoleAggregationStrategyManual
	switch {
	case manual && aggregated:
		record, err := json.Marshal(metadataPatch{metadata{Labels: map[string]*string{label: &yes}}})
		if err != nil {
			return nil, fmt.Errorf("keeping the label of the ClusterRole %s: %w", role.GetName(), err)
		}
		change.Labels[label], change.Annotations[ReplacedAnnotation] = nil, new(string(record))
	case !manual && text != "":
		var record metadataPatch
		// A spoilt record stops nothing.
		if err := json.Unmarshal([]byte(text), &record); err == nil && record.Metadata.Labels[label] != nil {
			change.Labels[label] = &yes
		}
		change.Annotations[ReplacedAnnotation] = nil
	default:
		return nil, nil
	}
	patch, err := json.Marshal(metadataPatch{change})
	if err != nil {
		return nil, fmt.Errorf("writing the labels of the ClusterRole %s: %w", role.GetName(), err)
	}
	return patch, nil
}
