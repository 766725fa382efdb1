package validate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/api/admission"
	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
)

// foreignManifests is the folder of others' manifests, if it exists: they are not part of the repository.
const foreignManifests = "../../../../shared/manifests"

// manifestsAccepted is the minimal number of those that must be accepted completely.
const manifestsAccepted = 54

// Each file is judged as by admission, without a cluster: kubectl's check of the fields, the defaults, and the rules.
// -v prints why the others are refused.
func TestManifestsThatOthersWrote(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(foreignManifests, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Skip("there are no manifests of others")
	}
	accepted := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		refusals := judgeFile(t, text)
		if len(refusals) == 0 {
			accepted++
			continue
		}
		t.Logf("%s\n\t%s", filepath.Base(path), strings.Join(refusals, "\n\t"))
	}
	t.Logf("%d of %d are accepted whole", accepted, len(paths))
	if accepted < manifestsAccepted {
		t.Errorf("%d of %d manifests are accepted, want at least %d", accepted, len(paths), manifestsAccepted)
	}
}

// judgeFile returns the errors of a file of several manifests.
func judgeFile(t *testing.T, text []byte) []string {
	var refusals []string
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return refusals
		}
		if err != nil {
			t.Fatal(err)
		}
		refusals = append(refusals, judgeForeign(document)...)
	}
}

// foreign judges manifests by their version and kind.
var foreign = map[string]func(document []byte, settings clusterconfig.Settings) (field.ErrorList, error){
	"kubevirt.io/v1 VirtualMachine": judged(func(vm *v1.VirtualMachine, settings clusterconfig.Settings) field.ErrorList {
		defaults.VM(vm, nil, settings)
		return VM(vm, nil, settings)
	}),
	"kubevirt.io/v1 VirtualMachineInstance": judged(func(vmi *v1.VirtualMachineInstance, settings clusterconfig.Settings) field.ErrorList {
		defaults.VMI(vmi, settings)
		return VMI(vmi, settings)
	}),
	"kubevirt.io/v1 VirtualMachineInstanceReplicaSet": judged(func(rs *v1.VirtualMachineInstanceReplicaSet, settings clusterconfig.Settings) field.ErrorList {
		return ReplicaSet(rs, nil, settings)
	}),
	"kubevirt.io/v1 VirtualMachineInstanceMigration": judged(func(vmim *v1.VirtualMachineInstanceMigration, _ clusterconfig.Settings) field.ErrorList {
		return Migration(vmim, false, nil, nil)
	}),
	"migrations.kubevirt.io/v1alpha1 MigrationPolicy": judged(func(policy *migrationsv1alpha1.MigrationPolicy, _ clusterconfig.Settings) field.ErrorList {
		return MigrationPolicy(policy, nil)
	}),
	"cdi.kubevirt.io/v1beta1 DataVolume": judged(func(dv *cdiv1.DataVolume, _ clusterconfig.Settings) field.ErrorList {
		defaults.DataVolume(dv, nil, true)
		return DataVolume(dv, nil)
	}),
	"kubevirt.io/v1 KubeVirt": judged(func(kv *v1.KubeVirt, _ clusterconfig.Settings) field.ErrorList {
		return KubeVirt(kv, nil)
	}),
}

func judged[T any](judge func(*T, clusterconfig.Settings) field.ErrorList) func([]byte, clusterconfig.Settings) (field.ErrorList, error) {
	return func(document []byte, settings clusterconfig.Settings) (field.ErrorList, error) {
		object := new(T)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			return nil, err
		}
		return judge(object, settings), nil
	}
}

// judgeForeign judges one manifest; it refuses none of a kind that is not Drydock's.
func judgeForeign(document []byte) []string {
	var meta struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal(document, &meta); err != nil {
		return []string{err.Error()}
	}
	judge := foreign[meta.APIVersion+" "+meta.Kind]
	switch {
	case judge == nil && strings.Contains(meta.APIVersion, "kubevirt.io/"):
		return []string{fmt.Sprintf("%s %s is not served", meta.APIVersion, meta.Kind)}
	case judge == nil:
		return nil
	}
	settings := clusterconfig.FromKubeVirt(nil)
	settings.HostDisk, settings.DownwardMetrics = true, true
	errs, err := judge(document, settings)
	if err != nil {
		return []string{meta.Kind + ": " + err.Error()}
	}
	var refusals []string
	for _, e := range errs {
		refusals = append(refusals, meta.Kind+" "+e.Field+": "+admission.Sentence(e))
	}
	return refusals
}
