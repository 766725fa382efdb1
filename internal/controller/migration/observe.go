package migration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"

	"drydock.dev/drydock/internal/controller/attachmentpods"
	"drydock.dev/drydock/internal/controller/objectevents"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

func (r *Reconciler) observe(ctx context.Context, m *v1.VirtualMachineInstanceMigration) (migration.Observed, error) {
	o := migration.Observed{Migration: m, TargetName: targetName(m), Now: r.Now()}
	var err error
	if o.Target, err = versioned.Read[corev1.Pod](ctx, r.Client, "the target pod", targetKey(m)); err != nil {
		return o, err
	}
	vmi, err := versioned.Read[v1.VirtualMachineInstance](ctx, r.Client, "VMI", vmiKey(m))
	switch {
	case err != nil:
		return o, err
	case vmi == nil:
		r.vmis.Forget(vmiKey(m))
		return o, nil
	}
	o.VMI = r.vmis.Newer(vmi)
	if o.Source, err = versioned.Read[corev1.Pod](ctx, r.Client, "the source pod", sourceKey(o.VMI)); err != nil {
		return o, err
	}
	if !m.TargetIsCreated() {
		o.Choice, err = r.choose(ctx, m)
		return o, err
	}
	ms := o.VMI.Status.MigrationState
	handedOver := ms != nil && ms.MigrationUID == m.UID
	if !handedOver && o.Target != nil && o.Target.Spec.NodeName != "" {
		o.Configuration, err = r.configuration(ctx, o.VMI)
	}
	return o, err
}

func (r *Reconciler) ask(ctx context.Context, question migration.Question, o *migration.Observed) error {
	var err error
	switch question {
	case migration.NeedVMI:
		err = r.askForVMI(ctx, o)
	case migration.NeedSource:
		o.Source, err = versioned.Read[corev1.Pod](ctx, r.Reader, "the source pod", sourceKey(o.VMI))
		o.SourceAsked = err == nil
	case migration.NeedTarget:
		o.Target, err = versioned.Read[corev1.Pod](ctx, r.Reader, "the target pod", targetKey(o.Migration))
		o.TargetAsked = err == nil
	case migration.NeedWarning:
		o.Warning, err = objectevents.NewestWarning(ctx, r.Reader, o.Target)
		o.WarningAsked = err == nil
	case migration.NeedObstacle:
		o.Obstacle, err = r.obstacle(ctx, o.VMI)
		o.ObstacleAsked = err == nil
	case migration.NeedDestinations:
		o.Destinations, err = r.Destinations(ctx, o.VMI)
		o.DestinationsAsked = err == nil
	default:
		return fmt.Errorf("nobody can ask for %s", question)
	}
	return err
}

// askForVMI asks the API server for the VMI, and observes again the facts that depend on it.
func (r *Reconciler) askForVMI(ctx context.Context, o *migration.Observed) error {
	vmi, err := r.storedVMI(ctx, vmiKey(o.Migration))
	if err != nil {
		return err
	}
	if o.VMI, o.VMIAsked = vmi, true; vmi == nil {
		return nil
	}
	r.vmis.Wrote(vmi)
	if !o.SourceAsked {
		if o.Source, err = versioned.Read[corev1.Pod](ctx, r.Client, "the source pod", sourceKey(vmi)); err != nil {
			return err
		}
	}
	if !o.Migration.TargetIsCreated() {
		r.choices.forget()
		o.Choice, err = r.choose(ctx, o.Migration)
	}
	return err
}

// obstacle says why the guest's volumes are not attached to the target node yet, if that is known.
func (r *Reconciler) obstacle(ctx context.Context, vmi *v1.VirtualMachineInstance) (string, error) {
	name := hotplug.Expected(vmi)
	if name == "" {
		return "", nil
	}
	pod, err := versioned.Read[corev1.Pod](ctx, r.Client, "the attachment pod", types.NamespacedName{Namespace: vmi.Namespace, Name: name})
	switch {
	case err != nil:
		return "", err
	case pod == nil:
		return fmt.Sprintf("the attachment pod %s has not been made: see the events of the VMI", name), nil
	case !hotplugpod.IsOf(pod, vmi):
		return hotplugpod.Foreign(name), nil
	}
	if seen := hotplugpod.Observe(pod); seen.Alive() {
		return "", nil // it is about to be recorded
	}
	return attachmentpods.Obstacle(ctx, r.Reader, pod)
}

// configuration returns the effective configuration of the VMI's migrations, which is needed only twice in a
// migration's life.
func (r *Reconciler) configuration(ctx context.Context, vmi *v1.VirtualMachineInstance) (migration.Configuration, error) {
	settings, err := r.Settings(ctx)
	if err != nil {
		return migration.Configuration{}, err
	}
	var policies migrationsv1alpha1.MigrationPolicyList
	if err := r.Reader.List(ctx, &policies); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return migration.Configuration{}, fmt.Errorf("listing the MigrationPolicies: %w", err)
	}
	var labels map[string]string
	if len(policies.Items) > 0 {
		namespace, err := versioned.Read[corev1.Namespace](ctx, r.Reader, "namespace", types.NamespacedName{Name: vmi.Namespace})
		if err != nil {
			return migration.Configuration{}, err
		}
		if namespace != nil {
			labels = namespace.Labels
		}
	}
	return migration.Effective(settings.Migrations, policies.Items, vmi, labels), nil
}

// storedVMI asks the API server for a VMI, nil for none. A pod's label may name none at all.
func (r *Reconciler) storedVMI(ctx context.Context, key types.NamespacedName) (*v1.VirtualMachineInstance, error) {
	if key.Name == "" {
		return nil, nil
	}
	return versioned.Read[v1.VirtualMachineInstance](ctx, r.Reader, "VMI", key)
}

func vmiKey(m *v1.VirtualMachineInstanceMigration) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.VMIName}
}

func sourceKey(vmi *v1.VirtualMachineInstance) types.NamespacedName {
	return types.NamespacedName{Namespace: vmi.Namespace, Name: launcherpod.CurrentName(vmi)}
}

func targetKey(m *v1.VirtualMachineInstanceMigration) types.NamespacedName {
	return types.NamespacedName{Namespace: m.Namespace, Name: targetName(m)}
}

// targetName returns the name of the migration's target pod, even without a VMI.
func targetName(m *v1.VirtualMachineInstanceMigration) string {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = m.Spec.VMIName
	return launcherpod.TargetName(vmi, m.UID)
}
