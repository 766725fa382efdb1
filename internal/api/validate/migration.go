package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"

	"drydock.dev/drydock/internal/api/validate/fieldcheck"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/object/quantity"
	"drydock.dev/drydock/internal/rules/object/supported"
)

// Migration validates a new VirtualMachineInstanceMigration against its VMI, nil for none, and the other migrations
// in its namespace. component means that one of Drydock's components creates it.
func Migration(m *v1.VirtualMachineInstanceMigration, component bool, vmi *v1.VirtualMachineInstance, others []v1.VirtualMachineInstanceMigration) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if m.Spec.SendTo != nil {
		errs = append(errs, field.Forbidden(spec.Child("sendTo"), migration.NotBetweenClusters))
	}
	if m.Spec.Receive != nil {
		errs = append(errs, field.Forbidden(spec.Child("receive"), migration.NotBetweenClusters))
	}
	rest := m.Spec
	rest.SendTo, rest.Receive = nil, nil
	errs = append(errs, supported.MigrationSpec(&rest, spec)...)
	if p := m.Spec.Priority; p != nil && *p != v1.PriorityUserTriggered && !component && len(errs) == 0 {
		errs = append(errs, field.Forbidden(spec.Child("priority"),
			fmt.Sprintf("%s is for the migrations that Drydock itself asks for; a user's are %s, as are those that say nothing", *p, v1.PriorityUserTriggered)))
	}
	errs = append(errs, fieldcheck.Labels(m.Spec.AddedNodeSelector, spec.Child("addedNodeSelector"))...)
	return append(errs, migratable(m, vmi, others, spec.Child("vmiName"))...)
}

// migratable requires that the VMI can be migrated now, or once its guest has started.
func migratable(m *v1.VirtualMachineInstanceMigration, vmi *v1.VirtualMachineInstance, others []v1.VirtualMachineInstanceMigration, path *field.Path) field.ErrorList {
	name := m.Spec.VMIName
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "a migration needs the name of the VMI that it moves")}
	case vmi == nil:
		return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("there is no such VMI in namespace %s", m.Namespace))}
	}
	if err := migration.MayMove(vmi); err != nil {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("cannot migrate VMI %s: %v%s", name, err, migration.Reason(vmi)))}
	}
	for i := range others {
		o := &others[i]
		if o.Name == m.Name {
			return nil // kube-apiserver answers that it exists, as a component expects that creates it twice.
		}
		if o.Spec.VMIName == name && !o.IsFinal() {
			return field.ErrorList{inFlight(fmt.Sprintf("VMI %s is being migrated already, by the migration %s; delete that to cancel it", name, o.Name))}
		}
	}
	if migration.InFlight(vmi) {
		return field.ErrorList{inFlight(fmt.Sprintf("VMI %s is being migrated already", name))}
	}
	return nil
}

// inFlight is about no field: clients of KubeVirt expect its first words at the beginning of the refusal.
func inFlight(what string) *field.Error {
	return &field.Error{Type: field.ErrorTypeForbidden, BadValue: "", Detail: "in-flight migration detected. " + what}
}

// MigrationUpdate validates an update.
func MigrationUpdate(m, old *v1.VirtualMachineInstanceMigration) field.ErrorList {
	errs := unchanged([]string{v1.MigrationSelectorLabel}, m.Labels, old.Labels, field.NewPath("metadata", "labels"),
		"the migrations of a VMI are found by this label")
	if !equality.Semantic.DeepEqual(m.Spec, old.Spec) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "a migration can't be changed: delete it, which cancels it, and create another"))
	}
	return errs
}

// MigrationPolicy validates a policy. old is nil on creation.
func MigrationPolicy(p, old *migrationsv1alpha1.MigrationPolicy) field.ErrorList {
	if old != nil && (p.DeletionTimestamp != nil || equality.Semantic.DeepEqual(p.Spec, old.Spec)) {
		return nil
	}
	spec := field.NewPath("spec")
	errs := supported.MigrationPolicySpec(&p.Spec, spec)
	errs = append(errs, notNegative(p.Spec.CompletionTimeoutPerGiB, spec.Child("completionTimeoutPerGiB"))...)
	if b := p.Spec.BandwidthPerMigration; b != nil {
		errs = append(errs, fieldcheck.Quantity(*b, spec.Child("bandwidthPerMigration"), quantity.Rate(*b))...)
	}
	selectors, at := p.Spec.Selectors, spec.Child("selectors")
	if selectors == nil || len(selectors.NamespaceSelector)+len(selectors.VirtualMachineInstanceSelector) == 0 {
		return append(errs, field.Required(at, "a policy is for the VMIs with the labels that it names, or in namespaces with them, and names at least one; "+
			"what is to hold for all VMIs is set in spec.configuration.migrations of the KubeVirt object"))
	}
	errs = append(errs, fieldcheck.Labels(selectors.NamespaceSelector, at.Child("namespaceSelector"))...)
	return append(errs, fieldcheck.Labels(selectors.VirtualMachineInstanceSelector, at.Child("virtualMachineInstanceSelector"))...)
}

const negative = "must not be negative; 0 means no limit"

func notNegative(value *int64, path *field.Path) field.ErrorList {
	if value == nil || *value >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, negative)}
}

func migrations(c *v1.MigrationConfiguration, path *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := notNegative(c.CompletionTimeoutPerGiB, path.Child("completionTimeoutPerGiB"))
	errs = append(errs, notNegative(c.ProgressTimeout, path.Child("progressTimeout"))...)
	errs = append(errs, notNegative(c.UtilityVolumesTimeout, path.Child("utilityVolumesTimeout"))...)
	if b := c.BandwidthPerMigration; b != nil {
		errs = append(errs, fieldcheck.Quantity(*b, path.Child("bandwidthPerMigration"), quantity.Rate(*b))...)
	}
	errs = append(errs, atLeastOne(c.ParallelMigrationsPerCluster, path.Child("parallelMigrationsPerCluster"))...)
	return append(errs, atLeastOne(c.ParallelOutboundMigrationsPerNode, path.Child("parallelOutboundMigrationsPerNode"))...)
}

func atLeastOne(limit *uint32, path *field.Path) field.ErrorList {
	if limit == nil || *limit > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *limit, "must be at least 1, or no migration would ever begin")}
}
