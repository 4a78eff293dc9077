"""What a GPU computes is what a CPU does: models, searches, trainings, checkpoints, shards.

`pytest -m gpu` needs CUDA; ADMIN_NMT_TEST_DEVICE=cpu tries the same tests without it, all but those of fp16.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gpu_worker import train_a_fresh_profiled_model
from toy import StopAfter, poison, random_ids

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.model.configuration_admin import VARIANTS
from admin_nmt.trainer.divergence import MAX_OVERFLOWS, DivergedError
from admin_nmt.weights.omega import omega_by_sublayer

DEVICE = os.environ.get("ADMIN_NMT_TEST_DEVICE", "cuda")
WORKER = Path(__file__).parent / "gpu_worker.py"
WIDE = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "encoder_layers": 6, "decoder_layers": 6}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device"),
]
needs_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="fp16 trains on GPUs alone")


@pytest.fixture(params=VARIANTS)
def variant(request) -> str:
    return request.param


@pytest.fixture
def trainer(tmp_path, tiny_config) -> Callable[..., AdminTrainer]:
    """Builds a trainer of a model that is the same at every call, on a device."""

    def build(device: str, *callbacks, fields: dict | None = None, **arguments) -> AdminTrainer:
        torch.manual_seed(1)
        model = AdminForConditionalGeneration(tiny_config(**fields or {}))
        small = {"output_dir": str(tmp_path / "run"), "max_tokens": 40, "profile_tokens": 60, "max_steps": 6}
        schedule = {"learning_rate": 1e-2, "warmup_steps": 2, "save_strategy": "no", "logging_steps": 1}
        quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": device == "cpu", "tf32": False}
        args = AdminTrainingArguments(**small | schedule | quiet | arguments)
        return AdminTrainer(model, args, train_dataset=random_ids(24), callbacks=list(callbacks))

    return build


def loss_and_gradients(model: AdminForConditionalGeneration, batch: dict, bf16: bool = False) -> tuple:
    """On the CPU, wherever the model is."""
    model.zero_grad()
    inputs = {name: x.to(model.device) for name, x in batch.items()}
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        loss = model.train()(**inputs).loss
    loss.backward()
    return loss.detach().float().cpu(), {name: p.grad.float().cpu() for name, p in model.named_parameters()}


def test_forward_and_backward_in_float32(tiny_model, variant, batch):
    model = tiny_model(variant=variant, **WIDE)
    expected = loss_and_gradients(model, batch)
    found = loss_and_gradients(model.to(DEVICE), batch)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_forward_and_backward_in_bf16(tiny_model, variant, batch):
    """Within what bf16 rounds away, which is a few parts in a thousand of each product."""
    model = tiny_model(variant=variant, **WIDE)
    loss, gradients = loss_and_gradients(model, batch)
    found, rounded = loss_and_gradients(model.to(DEVICE), batch, bf16=True)
    torch.testing.assert_close(found, loss, rtol=0.02, atol=0)
    difference = sum((rounded[name] - gradient).square().sum() for name, gradient in gradients.items())
    size = sum(gradient.square().sum() for gradient in gradients.values())
    assert 0 < difference < 0.1**2 * size


def test_beam_search(tiny_model, variant):
    model, sources = tiny_model(variant=variant), random_ids(40)["input_ids"][:]
    options = {"num_beams": 5, "max_new_tokens": 9, "batch_tokens": 100}
    expected = generate_ids(model, sources, **options)
    assert generate_ids(model.to(DEVICE), sources, **options) == expected


def test_profiles_as_on_a_cpu(trainer):
    omegas = []
    for device in ("cpu", DEVICE):
        run = trainer(device, fields={"variant": "admin", "omega_rule": "profile"}, max_steps=1)
        run.train()
        omegas.append([omega.float().cpu() for omega in omega_by_sublayer(run.model).values()])
    torch.testing.assert_close(*omegas, rtol=1e-4, atol=1e-5)
    assert max(float(omega.max()) for omega in omegas[0]) > 1


def test_goes_on_from_a_checkpoint_of_a_cpu(trainer):
    straight = trainer("cpu")
    straight.train()
    trainer("cpu", StopAfter(3)).train()
    resumed = trainer(DEVICE)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 6
    # Softmax takes the gradient of the keys' biases away, and Adam scales what rounding leaves of it.
    moved = [
        {name: x.cpu() for name, x in run.model.state_dict().items() if not name.endswith("k_proj.bias")}
        for run in (resumed, straight)
    ]
    torch.testing.assert_close(*moved, rtol=1e-3, atol=1e-4)


@needs_cuda
def test_fp16_survives_overflows(trainer):
    """The scale falls until gradients are finite, and an update that is not is left out."""
    run = trainer(DEVICE, fp16=True, max_steps=30)
    run.accelerator.scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30)
    poison(run.model, run, update=25)
    start = {name: p.detach().clone() for name, p in run.model.named_parameters()}
    run.train()
    assert run.accelerator.scaler.get_scale() < 2.0**30
    assert all(p.isfinite().all() for p in run.model.parameters())
    assert not torch.equal(run.model.model.shared.weight.cpu(), start["model.shared.weight"].cpu())


@needs_cuda
def test_fp16_stops_where_every_update_overflows(trainer):
    run = trainer(DEVICE, fp16=True, max_steps=2 * MAX_OVERFLOWS)
    with torch.no_grad():
        run.model.model.encoder.layers[0].fc1.weight.fill_(torch.nan)
    with pytest.raises(DivergedError, match=f"at update {MAX_OVERFLOWS}:"):
        run.train()


def test_fsdp2_in_bf16_profiles_and_trains(tmp_path):
    """One process on a GPU, two on a CPU, where one is not sharded."""
    processes = 1 if DEVICE == "cuda" else 2
    expected = train_a_fresh_profiled_model(tmp_path / "alone", DEVICE, accumulation=processes)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", WORKER]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, DEVICE, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "rank0.pt")
    assert found["sharded"] and not expected["sharded"]
    assert found["omega"] == pytest.approx(expected["omega"], rel=0.02)
    assert found["losses"] == pytest.approx(expected["losses"], rel=0.02)
    assert found["nll"] == pytest.approx(expected["nll"], rel=0.02)
