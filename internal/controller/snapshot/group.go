package snapshot

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/controller/volumesnapshot"
	"drydock.dev/drydock/internal/rules/snapshot"
)

// observeGroup observes the VolumeGroupSnapshot of a content that uses one, or the claims that it would select.
func (r *Reconciler) observeGroup(ctx context.Context, o snapshot.Observed) (snapshot.Observed, error) {
	if !snapshot.ByGroup(o.Content) {
		return o, nil
	}
	key := client.ObjectKey{Namespace: o.Content.Namespace, Name: snapshot.GroupName(o.Snapshot)}
	var err error
	o.Group, err = volumesnapshot.Group(ctx, r.Client, r.Reader, key, func(g *snapshot.Group) bool { return snapshot.SeeksMembers(o, g) })
	if err != nil {
		return o, err
	}
	switch {
	case o.Group == nil && o.VM != nil:
		o.Labeled, err = volumesnapshot.Labeled(ctx, r.Reader, key.Namespace, snapshot.GroupLabel(o.VM))
	case o.Group != nil && o.Group.Taken != nil && !snapshot.Named(o.Content):
		o.Volumes, err = r.volumes(ctx, o)
	}
	return o, err
}

// volumes returns the CSI volumes of a content's claims. A volume that does not exist or is not CSI's is absent.
func (r *Reconciler) volumes(ctx context.Context, o snapshot.Observed) (map[string]snapshot.Volume, error) {
	found := map[string]snapshot.Volume{}
	for i := range o.Content.Spec.VolumeBackups {
		name := o.Content.Spec.VolumeBackups[i].PersistentVolumeClaim.Spec.VolumeName
		v, err := versioned.Read[corev1.PersistentVolume](ctx, r.Reader, "the volume", client.ObjectKey{Name: name})
		if err != nil {
			return nil, err
		}
		if v != nil && v.Spec.CSI != nil {
			found[name] = snapshot.Volume{Driver: v.Spec.CSI.Driver, Handle: v.Spec.CSI.VolumeHandle}
		}
	}
	return found, nil
}
