package transfer

import "drydock.dev/drydock/internal/contracts/layout"

// UploadName returns the name of a claim's upload worker pod, and of its Service on UploadPort. A claim's name may have
// dots and be longer than a Service's: such a name is changed and gets a digest.
func UploadName(claim string) string { return layout.HostName("cdi-upload-"+claim, claim) }
