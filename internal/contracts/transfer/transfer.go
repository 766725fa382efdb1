// Package transfer is the contract between virt-controller and the worker pods that fill claims: a worker's task, progress,
// result, ports and paths. It must import nothing but layout and the standard library: the worker links it, and the
// worker's memory is limited.
//
// A worker gets its Task as JSON in TaskEnv; Secrets and ConfigMaps are mounted at the paths below. It answers GET
// ProgressPath on ProgressPort with Progress as JSON, by plain HTTP: nothing in it is secret and no decision depends on
// it. Its container's termination message is a Result as JSON, also after a failure.
//
// The kubelet restarts a worker's container with backoff (restartPolicy OnFailure) unless its Result is permanent. It
// exits 0 only when the target is complete. The state for continuing after a restart is in WorkDir or, on a file system
// target, beside the image.
package transfer

// Paths in a worker's pod.
const (
	TaskEnv        = "DRYDOCK_TRANSFER"
	TargetDir      = "/data"                 // a claim's file system; the complete image is renamed to TargetDir/disk.img
	TargetDevice   = "/dev/cdi-block-volume" // a block claim
	SourceDir      = "/source"               // a clone's source claim (read-only)
	SourceDevice   = "/dev/cdi-source-volume"
	WorkDir        = "/work"        // an emptyDir for journals, which survives the container
	CredentialsDir = "/credentials" // the source's Secret: accessKeyId and secretKey
	HeadersDir     = "/headers"     // one folder per Secret of extra headers
	CADir          = "/ca"          // the source's certificate authorities (PEM files), from its ConfigMap
	TLSDir         = "/tls"         // tls.crt, tls.key and ca.crt of a worker that serves uploads, or sends a clone to one
)

// Ports of a worker.
const (
	ProgressPort = 8080
	ProgressPath = "/progress"
	UploadPort   = 8443 // of a worker of kind upload, with mutual TLS
	// AwaitPortFlag makes the worker's program only wait until a port listens.
	AwaitPortFlag = "-await-port"
	// UploadPath accepts the image as the body of a POST or PUT and answers when the image is complete. UploadAsyncPath
	// answers when the body was read. HEAD reports whether the worker accepts an upload.
	UploadPath      = "/v1beta1/upload"
	UploadAsyncPath = "/v1beta1/upload-async"
	// These accept the file of a form (multipart/form-data), as browsers send it.
	UploadFormPath      = "/v1beta1/upload-form"
	UploadFormAsyncPath = "/v1beta1/upload-form-async"
	ClonePath           = "/v1beta1/clone"    // accepts a clone source's data: a raw image, compressed with zstd
	CloneSizeHeader     = "Drydock-Disk-Size" // in bytes
	CloneSumTrailer     = "Drydock-Sha256"    // of the body, in hexadecimal; without it, the body is truncated
	CloneWindow         = 4 << 20             // the compression's, in bytes
)

// Kind is a worker's kind of task.
type Kind string

// The kinds.
const (
	KindHTTP        Kind = "http"         // imports from an HTTP or HTTPS server
	KindRegistry    Kind = "registry"     // imports the file in an image's /disk
	KindBlank       Kind = "blank"        // creates an empty disk
	KindUpload      Kind = "upload"       // serves an upload or receives a clone
	KindCloneSource Kind = "clone-source" // sends the claim at SourceDir or SourceDevice to a worker of KindUpload
)

// Task is the task of one worker.
type Task struct {
	Kind Kind `json:"kind"`
	// URL is the source of KindHTTP (http, https) and KindRegistry (docker://… or oci-archive:///path), and the target
	// of KindCloneSource (https).
	URL string `json:"url,omitempty"`
	// Checksum is "<algorithm>:<hex>" (sha256, sha512, md5, sha1) of the file as the source serves it.
	Checksum string `json:"checksum,omitempty"`
	// Credentials, SecretHeaders and CA mean that the folders above are mounted.
	Credentials   bool     `json:"credentials,omitempty"`
	Headers       []string `json:"headers,omitempty"` // "Name: value", as written by the user
	SecretHeaders bool     `json:"secretHeaders,omitempty"`
	CA            bool     `json:"ca,omitempty"`
	// Insecure permits a registry with plain HTTP or an unknown certificate, and an HTTPS server with an unknown one.
	Insecure bool `json:"insecure,omitempty"`
	Archive  bool `json:"archive,omitempty"` // a tar file is unpacked into a file system claim (contentType archive)
	Block    bool `json:"block,omitempty"`   // the target (of KindCloneSource: the source) is a block claim
	// Size is the disk's in bytes, without the file system's overhead: a smaller image is grown to it, a larger one
	// refused.
	Size int64 `json:"size"`
	// KeepContent makes a worker of KindUpload refuse a target with content: nobody has asked to replace it.
	KeepContent bool `json:"keepContent,omitempty"`
	Preallocate bool `json:"preallocate,omitempty"` // writes or reserves every block of the target
	// The administrator's prefixes of source addresses: denied beside those that always are, and allowed despite any
	// denial.
	DeniedNetworks  []string `json:"deniedNetworks,omitempty"`
	AllowedNetworks []string `json:"allowedNetworks,omitempty"`
	StallSeconds    int64    `json:"stallSeconds,omitempty"` // how long a source may send nothing, 0 for one minute
}

// Progress is a worker's progress. It returns to zero when the work begins again, for example with another upload.
type Progress struct {
	Total       int64 `json:"total"` // bytes of the source, 0 while unknown
	Done        int64 `json:"done"`
	SecondsLeft int64 `json:"secondsLeft"` // an estimate, -1 without one
	// Step is for a condition's message: "connecting to host", "copying", "converting", "waiting for an upload".
	Step  string `json:"step"`
	Ready bool   `json:"ready,omitempty"` // an upload worker accepts an upload now
}

// Reason is how a worker ended.
type Reason string

// The reasons. A retry can't help if Permanent returns true.
const (
	ReasonCompleted         Reason = "Completed"
	ReasonSourceUnreachable Reason = "SourceUnreachable"
	ReasonSourceRefused     Reason = "SourceRefused" // 401, 403, 404 or 410 of the server, or a registry's equivalent
	ReasonUntrusted         Reason = "Untrusted"     // the server's certificate is not trusted
	ReasonCut               Reason = "Cut"           // the content ended too early or stalled
	ReasonChecksumMismatch  Reason = "ChecksumMismatch"
	// ReasonInvalidImage means that the content is not an image, is damaged, has an unknown format or compression, or
	// is a decompression bomb.
	ReasonInvalidImage Reason = "InvalidImage"
	ReasonUnsafeImage  Reason = "UnsafeImage"   // the image refers to another file
	ReasonTooLarge     Reason = "TooLarge"      // the disk in the image is larger than the claim
	ReasonNoSpace      Reason = "NoSpace"       // the target's file system has no space for the image
	ReasonLimit        Reason = "LimitExceeded" // reading the image took more memory or time than permitted
	ReasonHasContent   Reason = "HasContent"    // nobody has asked to replace the target's content
	ReasonInternal     Reason = "Error"         // any other error, such as a failed write to the target
)

// Permanent reports whether a retry of the same task would end the same way.
func (r Reason) Permanent() bool {
	switch r {
	case ReasonChecksumMismatch, ReasonInvalidImage, ReasonUnsafeImage, ReasonTooLarge, ReasonLimit, ReasonHasContent:
		return true
	}
	return false
}

// Result is how a worker's container ended.
type Result struct {
	Reason      Reason `json:"reason"`
	Message     string `json:"message,omitempty"`     // the problem and its remedy, for the DataVolume's owner
	VirtualSize int64  `json:"virtualSize,omitempty"` // of the written disk, in bytes
	Read        int64  `json:"read,omitempty"`        // bytes that this container read from the source
	Resumed     int64  `json:"resumed,omitempty"`     // bytes that an earlier container had written
}
