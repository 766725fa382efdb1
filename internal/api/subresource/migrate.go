package subresource

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/vmi/verb"
)

// migrationPrefix begins the names of migrations that this API creates, as in KubeVirt.
const migrationPrefix = "kubevirt-migrate-vm-"

// Migrate refuses a guest that can't be migrated.
func Migrate(vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance) error {
	if vmi == nil || vmi.Status.Phase != v1.Running {
		return verb.Conflict(vm, "VM is not running")
	}
	if err := migration.CanMigrate(vmi); err != nil {
		return verb.Conflict(vm, "cannot migrate VM: %v%s", err, migration.Reason(vmi))
	}
	return nil
}

// migrate creates a migration of the VM's VMI, which admission validates like any other.
func (s *Server) migrate(w http.ResponseWriter, r *http.Request) error {
	options, err := readOptions[v1.MigrateOptions](r)
	if err != nil {
		return err
	}
	vm, vmi, err := s.read(r.Context(), key(r))
	if err != nil {
		return err
	}
	if err := Migrate(vm, vmi); err != nil {
		return err
	}
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, GenerateName: migrationPrefix},
		Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: vm.Name, AddedNodeSelector: options.AddedNodeSelector},
	}
	create := &client.CreateOptions{DryRun: slices.Clone(options.DryRun), FieldManager: string(fieldOwner)}
	if err := s.cluster.Create(r.Context(), m, create); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
