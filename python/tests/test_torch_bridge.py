"""ferry.torch: exchange without a copy, state dicts, a ported resnet18. Skips without PyTorch."""

import sys
import unittest

import ferry

try:
    import torch
    from torch import nn

    torch.Tensor  # the folder torch/ beside this file is a package of that name, too
except (ImportError, AttributeError):
    print("skipped: no PyTorch in this Python")
    sys.exit(77)


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Conv2d(inputs, outputs, 1, stride) if stride == 2 else nn.Identity()

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Resnet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        for i in range(1, 5):
            stage = nn.Sequential(Block(widths[i - 1], widths[i]), Block(widths[i], widths[i]))
            setattr(self, f"layer{i}", stage)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def address(tensor):
    return ferry._c.fy_tensor_map(tensor, "read")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


class Exchange(unittest.TestCase):
    def test_zero_copy(self):
        x = torch.arange(6.0).reshape(2, 3).t().requires_grad_()
        t = ferry.torch.to_ferry(x)
        self.assertEqual((t.strides, t.tolist()), (tuple(x.stride()), x.tolist()))
        back = ferry.torch.to_torch(t)
        self.assertEqual(back.data_ptr(), x.data_ptr())
        back[0, 0] = 9
        self.assertEqual((t[0, 0].item(), x[0, 0].item()), (9, 9))
        del x, back
        self.assertEqual(t[2, 1].item(), 5)
        for dtype in ("f64", "f16", "bf16", "i32", "i64", "u8", "bool"):
            u = ferry.torch.to_torch(ferry.ones((2, 2), dtype))
            self.assertEqual(ferry.torch.to_ferry(u).dtype, dtype)

    def test_capsules_of_both_versions(self):
        t = ferry.ones((2, 3))
        for capsule in (t.__dlpack__(), t.__dlpack__(max_version=(1, 0))):
            u = torch.from_dlpack(capsule)
            self.assertEqual((u.data_ptr(), u.tolist()), (address(t), t.tolist()))
        x = torch.ones(2, 3)
        for capsule in (torch.utils.dlpack.to_dlpack(x), x.__dlpack__(max_version=(1, 0))):
            v = ferry._core.from_dlpack(capsule, ferry.host)
            self.assertEqual((address(v), v.tolist()), (x.data_ptr(), x.tolist()))

    def test_refusals(self):
        model = ferry.train.Model("host", ferry.train.linear(2, 1), (2,))
        state = {name: value.numpy() for name, value in ferry.torch.state_dict(model).items()}
        with self.assertRaisesRegex(ValueError, "weight is ndarray, not a torch.Tensor"):
            ferry.torch.load_state_dict(model, state)
        with self.assertRaisesRegex(ferry.Unsupported, "download"):
            ferry.torch.to_torch(ferry.ones(2, device="sim:0"))
        with self.assertRaisesRegex(ferry.InvalidArgument, "read-only"):
            ferry.torch.to_torch(ferry.from_buffer(b"read-only"))
        with self.assertRaisesRegex(ferry.InvalidArgument, "repeats elements"):
            ferry.torch.to_torch(ferry.ones(1).broadcast_to(3))
        with self.assertRaises(TypeError):
            ferry.torch.to_ferry([1.0])
        with self.assertRaises(TypeError):
            ferry.torch.to_torch(torch.ones(1))

    def test_many_exchanges_leave_nothing(self):
        x, t = torch.ones(1024), ferry.ones(1024)
        for count in (2000, 50_000):  # a leak of one tensor in ten would be 20 MiB
            begin = resident()
            for _ in range(count):
                ferry.torch.to_torch(ferry.torch.to_ferry(x) + t)
                ferry.torch.to_ferry(ferry.torch.to_torch(t) + x)
        self.assertLess(resident() - begin, 8 << 20)


class Models(unittest.TestCase):
    def test_resnet18(self):
        torch.manual_seed(1)
        net = Resnet18()
        with torch.no_grad():
            net(torch.randn(4, 1, 28, 28))  # running statistics that are not the first ones
        net.eval()
        x = torch.randn(2, 1, 28, 28)
        with torch.no_grad():
            wanted = net(x)
        images = ferry.torch.to_ferry(x.permute(0, 2, 3, 1).contiguous())
        for spec in ("host", "sim:0"):
            model = ferry.train.Model.open(spec, "resnet18").train(False)
            ferry.torch.load_state_dict(model, net.state_dict())
            given = images if spec == "host" else images.upload(spec)
            logits = model(given) if spec == "host" else model(given).download().wait()
            error = (ferry.torch.to_torch(logits) - wanted).abs().max().item()
            self.assertLess(error, 1e-4 * max(1, wanted.abs().max().item()))
            state = ferry.torch.state_dict(model)
            for name, value in net.state_dict().items():
                if not name.endswith("num_batches_tracked"):
                    self.assertTrue(torch.equal(state[name], value), name)
            self.assertFalse(net.load_state_dict(state, strict=False).unexpected_keys)

    def test_names_and_mistakes(self):
        layers = {"fc": ferry.train.linear(3, 2)}
        model = ferry.train.Model("host", ferry.train.sequential(layers), (3,))
        net = nn.Sequential(nn.Linear(3, 2))
        names = {"fc.weight": "0.weight", "fc.bias": "0.bias"}
        state = net.state_dict()
        ferry.torch.load_state_dict(model, state, names)
        again = ferry.torch.state_dict(model, lambda name: name.replace("fc", "0"))
        self.assertTrue(all(torch.equal(again[name], state[name]) for name in state))
        before = model.parameters()["fc.bias"].tolist()
        wrong = {"fc.bias": torch.zeros(2), "fc.weight": torch.zeros(2, 4), "more": torch.ones(1)}
        with self.assertRaisesRegex(ValueError, "no more; fc.weight is f32"):
            ferry.torch.load_state_dict(model, wrong)
        with self.assertRaisesRegex(ValueError, "fc.bias is on meta"):
            ferry.torch.load_state_dict(model, {**state, "fc.bias": torch.zeros(3, device="meta")})
        with self.assertRaisesRegex(ValueError, "no fc.weight"):
            ferry.torch.load_state_dict(model, {})
        self.assertEqual(model.parameters()["fc.bias"].tolist(), before)


if __name__ == "__main__":
    unittest.main()
