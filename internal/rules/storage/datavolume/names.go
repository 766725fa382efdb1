package datavolume

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"kubevirt.io/containerized-data-importer-api/pkg/apis/core"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

// CDI's labels and annotations. Those that other components need, too, are in package layout.
const (
	group = core.GroupName

	// AnnAdoption on a claim or DataVolume allows the DataVolume to adopt a filled claim.
	AnnAdoption = group + "/allowClaimAdoption"
	// AnnPopulatedFor on a claim names the DataVolume for which it is filled already.
	AnnPopulatedFor = group + "/storage.populatedFor"
	// AnnPrePopulated on a DataVolume names its filled claim. With another value, the claim is not
	// created either: somebody else provides it.
	AnnPrePopulated = cdiv1.AnnPrePopulated
	// AnnRetain on a DataVolume keeps its ended worker pods, if it is "true".
	AnnRetain = group + "/storage.pod.retainAfterCompletion"
	// AnnChecksum on a DataVolume is "<algorithm>:<hex>" of the source's file. It is older than the field.
	AnnChecksum = group + "/storage.import.checksum"

	// These four go from a DataVolume, or from a claim that takes an upload, to its worker pods.
	AnnPodNetworks       = "k8s.v1.cni.cncf.io/networks"
	AnnPodDefaultNetwork = "v1.multus-cni.io/default-network"
	AnnPodIstio          = "sidecar.istio.io/inject"
	AnnPodLinkerd        = "linkerd.io/inject"

	// AnnCloneAllowed on a DataVolume is the source, "<kind>/<namespace>/<name>", that its creator
	// may read. Only virt-api writes it.
	AnnCloneAllowed = "drydock.dev/clone-allowed"

	// AnnRestarts on a worker pod counts the restarts of its predecessors.
	AnnRestarts = "drydock.dev/restarts-before"
	// AnnTarget on a source pod or a restored claim is the DataVolume, "<namespace>/<name>".
	AnnTarget = "drydock.dev/datavolume"

	// LabelApp is on all objects of a DataVolume.
	LabelApp      = "app"
	LabelAppValue = "containerized-data-importer"

	// Finalizer stays on a DataVolume while it has a pod or a claim in another namespace.
	Finalizer = group + "/dataVolumeFinalizer"
)

// WorkerAppLabel is the label kubevirt.io of worker pods, by which virt-controller's informer selects.
const WorkerAppLabel = "virt-importer"

// Values of the label cdi.kubevirt.io.
const (
	LabelComponent    = group
	ComponentImporter = "importer"
	ComponentUpload   = "cdi-upload-server"
	ComponentCloner   = "cdi-clone-source"
)

// LabelService is the label by which a Service selects its worker.
const LabelService = group + "/storage.upload.target-service"

// WorkerName returns the name of the pod that fills the DataVolume's claim.
func WorkerName(dv *cdiv1.DataVolume) string {
	if serves(dv) {
		return transfer.UploadName(dv.Name)
	}
	return importerName(dv.Name)
}

func importerName(dv string) string {
	name := "importer-" + dv
	return layout.HostName(name, name)
}

// UploadWorkerName returns the name of the pod that receives the claim's upload.
func UploadWorkerName(claim metav1.Object) string { return transfer.UploadName(claim.GetName()) }

// SourcePodName returns the name of the pod that reads a clone's source. The UID is unique among
// DataVolumes of all namespaces that clone from one namespace.
func SourcePodName(dv *cdiv1.DataVolume) string { return string(dv.UID) + "-source-pod" }

// SecretName returns the name of the Secret with a worker's certificate. The owner's UID
// distinguishes it from the Secret of a deleted owner of the same name.
func SecretName(worker string, uid types.UID) string {
	return worker + "-" + strings.SplitN(string(uid), "-", 2)[0]
}

// serves reports whether the worker is a server that receives the content.
func serves(dv *cdiv1.DataVolume) bool {
	s := dv.Spec.Source
	return dv.Spec.SourceRef != nil || s != nil && (s.Upload != nil || s.PVC != nil || s.Snapshot != nil)
}
