package volumes

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
)

// claimSize is the size of each claim.
const claimSize = 8 << 20

// storage is an API server with a claim for each name.
type storage struct{}

func (*storage) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Namespace, claim.Name, claim.UID = namespace, name, types.UID("uid-of-"+name)
	claim.Spec.VolumeName = "volume-of-" + name
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(claimSize, resource.BinarySI)}
	return claim, nil
}

func (*storage) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	claim := strings.TrimPrefix(name, "volume-of-")
	volume := &corev1.PersistentVolume{}
	volume.Name = name
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: claim, UID: types.UID("uid-of-" + claim)}
	return volume, nil
}

func TestClaims(t *testing.T) {
	instance := &v1.VirtualMachineInstance{}
	instance.Namespace = "shop"
	v := v1.Volume{Name: "root"}
	v.DataVolume = &v1.DataVolumeSource{Name: "claim-root"}
	instance.Spec.Volumes = []v1.Volume{v}
	claims, err := ReadClaims(t.Context(), &storage{}, instance)
	if err != nil || len(claims) != 1 || claims["root"].ClaimName != "claim-root" {
		t.Fatalf("%+v, %v", claims, err)
	}
	if size, err := claims.Capacity(t.Context(), "claim-root"); err != nil || size != claimSize {
		t.Errorf("%d, %v", size, err)
	}
	requested := Claims{"new": {ClaimName: "new", Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Mi")}}}
	if size, err := requested.Capacity(t.Context(), "new"); err != nil || size != 3<<20 {
		t.Errorf("of a claim that has not been given anything: %d, %v", size, err)
	}
	if _, err := claims.Capacity(t.Context(), "other"); err == nil {
		t.Error("the size of another's claim is known")
	}
}

// withoutClaims is an API server without claims.
type withoutClaims struct{ storage }

func (*withoutClaims) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), name)
}

func TestAStateThatIsGoneKeepsNobodyFromAGuest(t *testing.T) {
	instance := &v1.VirtualMachineInstance{}
	instance.Name, instance.Namespace = "web", "shop"
	instance.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
	claims, err := ReadClaims(t.Context(), &storage{}, instance)
	if err != nil || len(claims) != 1 || claims[stateclaim.Volume].ClaimName != stateclaim.ClaimName(instance) {
		t.Errorf("%+v, %v", claims, err)
	}
	if claims, err = ReadClaims(t.Context(), &withoutClaims{}, instance); err != nil || len(claims) != 0 {
		t.Errorf("without it: %+v, %v", claims, err)
	}
	instance.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "root"}}}}
	if _, err = ReadClaims(t.Context(), &withoutClaims{}, instance); !apierrors.IsNotFound(err) {
		t.Errorf("without a disk: %v", err)
	}
}
