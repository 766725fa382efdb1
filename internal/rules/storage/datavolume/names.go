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

// CDI's labels and annotations, and Drydock's; package layout has those that other components need, too.
const (
	group = core.GroupName

	// AnnAdoption on a claim or DataVolume allows the DataVolume to adopt a filled claim.
	AnnAdoption = group + "/allowClaimAdoption"
	// The claim's AnnPopulatedFor names the DataVolume for which it is filled.
	AnnPopulatedFor = group + "/storage.populatedFor"
	// AnnPrePopulated on a DataVolume names its filled claim. With any value, somebody else provides the claim.
	AnnPrePopulated = cdiv1.AnnPrePopulated
	// AnnRetain "true" keeps the DataVolume's ended worker pods.
	AnnRetain = group + "/storage.pod.retainAfterCompletion"
	// AnnChecksum on a DataVolume is "<algorithm>:<hex>" of the source's file.
	AnnChecksum = group + "/storage.import.checksum"

	// A DataVolume, or a claim that takes an upload, passes these four to its worker pods.
	AnnPodNetworks       = "k8s.v1.cni.cncf.io/networks"
	AnnPodDefaultNetwork = "v1.multus-cni.io/default-network"
	AnnPodIstio          = "sidecar.istio.io/inject"
	AnnPodLinkerd        = "linkerd.io/inject"

	// AnnCloneAllowed is the source, "<kind>/<namespace>/<name>", that the DataVolume's creator may read. Only
	// virt-api writes it.
	AnnCloneAllowed = "drydock.dev/clone-allowed"

	// AnnRestarts counts the restarts of a worker's predecessors.
	AnnRestarts = "drydock.dev/restarts-before"
	// AnnTarget on a source pod or a restored claim is the DataVolume, "<namespace>/<name>".
	AnnTarget = "drydock.dev/datavolume"

	// LabelApp is on all objects of a DataVolume.
	LabelApp      = "app"
	LabelAppValue = "containerized-data-importer"

	// Finalizer stays while the DataVolume has a pod or a claim in another namespace.
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

// LabelService selects a Service's worker.
const LabelService = group + "/storage.upload.target-service"

// WorkerName names the pod that fills the claim.
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

// UploadWorkerName names the pod that receives the upload.
func UploadWorkerName(claim metav1.Object) string { return transfer.UploadName(claim.GetName()) }

// SourcePodName names the pod by the UID: DataVolumes of several namespaces may clone from one.
func SourcePodName(dv *cdiv1.DataVolume) string { return string(dv.UID) + sourceSuffix }

const sourceSuffix = "-source-pod"

// SecretName names the Secret with a worker's certificate; the UID distinguishes it from a deleted owner's.
func SecretName(worker string, uid types.UID) string {
	return worker + "-" + strings.SplitN(string(uid), "-", 2)[0]
}

// serves reports whether the worker receives the content as a server.
func serves(dv *cdiv1.DataVolume) bool {
	s := dv.Spec.Source
	return dv.Spec.SourceRef != nil || s != nil && (s.Upload != nil || s.PVC != nil || s.Snapshot != nil)
}
