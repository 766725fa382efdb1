package volumes

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type bindings struct {
	Cluster
	claim  corev1.PersistentVolumeClaim
	volume corev1.PersistentVolume
}

func (b *bindings) Claim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return &b.claim, nil
}

func (b *bindings) PersistentVolume(context.Context, string) (*corev1.PersistentVolume, error) {
	return &b.volume, nil
}

// The author of a claim may write any volume's name into it.
func TestAClaimThatNamesSomebodyElsesVolumeOpensNothing(t *testing.T) {
	for what, tc := range map[string]struct {
		names string
		of    *corev1.ObjectReference
		want  string
	}{
		"it is not bound":                 {"", nil, "not bound"},
		"the volume is nobody's":          {"pv", nil, "bound to another claim"},
		"the volume is another claim's":   {"pv", &corev1.ObjectReference{Namespace: "shop", UID: "other"}, "bound to another claim"},
		"the claim had another life":      {"pv", &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "earlier"}, "bound to another claim"},
		"the volume is another namespace": {"pv", &corev1.ObjectReference{Namespace: "bank", Name: "data", UID: "claim"}, "bound to another claim"},
	} {
		b := &bindings{}
		b.claim.Namespace, b.claim.Name, b.claim.UID = "shop", "data", "claim"
		b.claim.Spec.VolumeName = tc.names
		b.volume.Name, b.volume.Spec.ClaimRef = "pv", tc.of
		volumes := Volumes{Cluster: b, Namespace: "shop"}
		v, err := volumes.Open(t.Context(), types.UID("pod"), "data")
		if err == nil {
			v.Close()
			t.Errorf("%s: it was opened", what)
		} else if !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", what, err, tc.want)
		}
	}
}
