package disk

// anonymous are the kinds of file systems that lie on block devices and have a number of their own all the same, so that only their source names a device.
// What needs a device has the device's number otherwise.
var anonymous = map[string]bool{"btrfs": true}

// SourceTells says whether the source of a mount with an anonymous number (0:N) names the device that a file system of this kind lies on. The source of
// others, such as FUSE's, tmpfs' and overlay's, is whatever the one who mounts them says, who may be any user.
func SourceTells(kind string) bool { return anonymous[kind] }
